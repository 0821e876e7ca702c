"""Where figures are stored, and how pages include them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT
from linrec.files.atomic import write_text

OUT_FOLDER = ROOT / "results" / "benchmarks"
PAGE = ROOT / "docs" / "performance.md"
LINE = 160  # characters: an epoch of a history, a row of a benchmark


def to_json(value: Any, indent: int = 0) -> str:
    """Indented JSON in which a list of numbers, and whatever fits, stays on one line."""
    line = json.dumps(value)
    if not isinstance(value, (dict, list)) or len(line) + indent <= LINE:
        return line
    if isinstance(value, list):
        if not any(isinstance(one, (dict, list)) for one in value):
            return line
        brackets, parts = "[]", [to_json(one, indent + 1) for one in value]
    else:
        brackets = "{}"
        parts = [f"{json.dumps(key)}: {to_json(one, indent + 1)}" for key, one in value.items()]
    pad = "\n" + " " * indent
    return brackets[0] + pad + " " + f",{pad} ".join(parts) + pad + brackets[1]


def write_json(path: Path, outcome: Any) -> None:
    write_text(path, to_json(outcome) + "\n")


def with_row(out: Path, command: str, row: dict[str, Any], same: tuple[str, ...]) -> None:
    """Add a row to the file; it replaces one with equal fields `same`."""
    rows = json.loads(out.read_text("utf-8"))["rows"] if out.is_file() else []
    others = [old for old in rows if any(old.get(name) != row[name] for name in same)]
    # rows of before there was a field come first
    rows = sorted([*others, row], key=lambda one: [(name in one, one.get(name)) for name in same])
    write_json(out, {"command": command, "rows": rows})
    print(f"wrote {out}")


def between(page: str, name: str, content: str) -> str:
    """The page with what stands between the markers of that name replaced."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, rest = page.split(begin)
    return before + begin + content + end + rest.split(end)[1]


def where(outcome: dict[str, Any]) -> str:
    """The machine, the date and the command of the figures."""
    threads = f"{outcome['threads']} thread{'' if outcome['threads'] == 1 else 's'}"
    return (
        f"{threads} of {outcome['machine']}, {outcome['date']}, commit {outcome['commit']}: "
        f"`{outcome['command'].strip()}`."
    )


def picture(title: str, plot: Path) -> str:
    """A plot of the results, as the page links to it."""
    return f"![{title}](../{plot.relative_to(ROOT).as_posix()})"
