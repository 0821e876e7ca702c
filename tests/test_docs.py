"""Every code block of the README and of docs/ runs as it is printed, page by page.

The blocks of a page run in order, in one namespace and one empty folder that holds events.csv and
items.csv. A block under `<!-- not run: reason -->` is left out, and so are lines that start with
`make `, which the newcomer check runs. A page has at least one block that runs, unless it is listed
in `PROSE`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
PAGES = ["README.md", *sorted(str(p.relative_to(REPO)) for p in (REPO / "docs").rglob("*.md"))]
# pages that promise no example: what was measured, what was tried, how it is built, what it shows
PROSE = {"docs/architecture.md", "docs/log.md", "docs/page.md", "docs/results.md"}
API = "docs/api/"  # written from docstrings, whose examples tests/test_examples.py runs
TUTORIALS = "docs/tutorials/"
DATASETS = (
    "complete-journey",
    "gowalla-checkins",
    "ml-latest-small",
)  # of the tutorials, used where they are there
PYTHON = {"python", "py"}
SHELL = {"bash", "sh", "shell", "console"}
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([\w+-]*)")
NOT_RUN = re.compile(r"^\s*<!--\s*not run\b:?\s*(.*?)\s*-->\s*$")
SECONDS_PER_LINE = 600


@dataclass(frozen=True)
class Block:
    language: str
    line: int  # of its first line of code, from 1
    code: str
    excuse: str | None  # None where it is to be run


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order; an indented fence loses its indent."""
    lines = text.splitlines()
    excuse, at = None, 0
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence is None:
            marker = NOT_RUN.match(lines[at])
            if marker or lines[at].strip():  # a blank line may stand between excuse and block
                excuse = marker[1] if marker else None
            at += 1
            continue
        end = at + 1
        while end < len(lines) and not lines[end].strip().startswith(fence[2]):
            end += 1
        code = textwrap.dedent("\n".join(lines[at + 1 : end]))
        yield Block(fence[3].lower(), at + 2, code, excuse)
        excuse, at = None, end + 1


def commands_of(block: Block) -> Iterator[tuple[int, str]]:
    """The commands of a shell block with their lines; in a console block they follow a `$ `."""
    lines = iter(enumerate(block.code.splitlines(), start=block.line))
    for number, line in lines:
        command = line
        while command.endswith("\\"):
            _, more = next(lines)
            command = f"{command}\n{more}"
        if block.language == "console":
            if not command.startswith("$ "):
                continue
            command = command.removeprefix("$ ")
        if command.strip() and not command.lstrip().startswith(("#", "make ")):
            yield number, command


def run_python(block: Block, namespace: dict[str, object], page: Path) -> None:
    # the blank lines make a traceback point at the page's own line
    code = "\n" * (block.line - 1) + block.code
    try:
        exec(compile(code, str(page), "exec"), namespace)
    except BaseException as error:
        raise AssertionError(f"{page.name}:{block.line}: python block failed: {error!r}") from error


def run_shell(block: Block, folder: Path, page: Path) -> None:
    here = Path(sys.executable).parent
    env = os.environ | {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    for number, command in commands_of(block):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_PER_LINE,
            check=False,
        )
        assert done.returncode == 0, (
            f"{page.name}:{number}: `{command}` ended with {done.returncode}:\n{done.stdout}"
        )


@pytest.fixture
def folder(demo_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(demo_files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def runnable(page: Path) -> list[Block]:
    """The blocks of a page that are to be run; a block that is not says why."""
    blocks = [b for b in blocks_of(page.read_text("utf-8")) if b.language in PYTHON | SHELL]
    for block in blocks:
        assert block.excuse != "", f"{page.name}:{block.line}: say why this block is not run"
    return [block for block in blocks if block.excuse is None]


def run_page(page: Path, folder: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in runnable(page):
        if block.language in PYTHON:
            run_python(block, namespace, page)
        else:
            run_shell(block, folder, page)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_an_example_unless_it_is_prose(name: str) -> None:
    if not name.startswith(API):
        assert (not runnable(REPO / name)) == (name in PROSE)


def test_every_page_of_prose_exists() -> None:
    assert set(PAGES) >= PROSE


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAGES if runnable(REPO / name)])
def test_page_runs_as_printed(name: str, folder: Path) -> None:
    run_page(REPO / name, folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith(TUTORIALS)])
def test_tutorial_runs_on_real_data(name: str, folder: Path, shared_data: Path) -> None:
    for dataset in DATASETS:
        (folder / dataset).symlink_to(shared_data / dataset)
    if any(f"{dataset}/" in (REPO / name).read_text("utf-8") for dataset in DATASETS):
        run_page(REPO / name, folder)
    else:
        pytest.skip("this tutorial makes its own data")


PAGE = """
<!-- not run: needs a server -->

```bash
curl localhost
```

- a list
  ```python
  x = 1
    # kept
  ```
<!-- not run -->
```console
$ linrec a \\
    --b
output
$ make demo
```
"""


def test_blocks_are_found_with_their_lines_and_excuses() -> None:
    first, second, third = blocks_of(PAGE)
    assert (first.language, first.line, first.excuse) == ("bash", 5, "needs a server")
    assert (second.language, second.line, second.code) == ("python", 10, "x = 1\n  # kept")
    assert second.excuse is None
    assert third.excuse == ""
    assert list(commands_of(third)) == [(15, "linrec a \\\n    --b")]


def test_a_failing_block_is_named_by_page_and_line(tmp_path: Path) -> None:
    page = Path("page.md")
    with pytest.raises(AssertionError, match=r"page\.md:7: python block failed: KeyError"):
        run_python(Block("python", 7, "{}['a']", None), {}, page)
    with pytest.raises(AssertionError, match=r"page\.md:9: `false \| cat` ended with 1"):
        run_shell(Block("bash", 8, "true\nfalse | cat", None), tmp_path, page)
