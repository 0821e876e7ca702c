"""What the project promises about itself: help, sizes, pins, licence and pages that agree."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPO = Path(__file__).resolve().parents[1]
LINES_PER_FILE = 400


def project() -> dict[str, Any]:
    return tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (REPO / "constraints.txt").read_text("utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonical(name): pin for name, pin in pairs}


def test_no_file_of_the_library_outgrows_a_reader() -> None:
    lengths = {
        str(path.relative_to(REPO)): len(path.read_text("utf-8").splitlines())
        for path in (REPO / "src").rglob("*.py")
    }
    assert {name: n for name, n in lengths.items() if n > LINES_PER_FILE} == {}


def commands() -> dict[str, Any]:
    from typer.main import get_command

    from linrec.cli import app

    found: dict[str, Any] = getattr(get_command(app), "commands", {})
    assert found, "linrec.cli.app has no commands"
    return found


def test_every_command_shows_an_example() -> None:
    helps = {name: f"{verb.help or ''} {verb.epilog or ''}" for name, verb in commands().items()}
    assert [name for name, text in helps.items() if f"linrec {name}" not in text] == []


def test_every_command_is_in_the_readme_or_the_command_reference() -> None:
    pages = [REPO / "README.md", REPO / "docs" / "commands.md"]
    shown = "\n".join(page.read_text("utf-8") for page in pages)
    assert [name for name in commands() if f"linrec {name}" not in shown] == []


def test_readme_names_what_a_newcomer_runs() -> None:
    readme = (REPO / "README.md").read_text("utf-8")
    assert "make demo" in readme
    assert "make test" in readme


def test_licence_is_apache() -> None:
    text = (REPO / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert project()["license"] == "Apache-2.0"


def test_version_is_one() -> None:
    import linrec

    declared = project()["version"]
    assert version("linrec") == declared
    assert getattr(linrec, "__version__", declared) == declared
    assert f"[{declared}]" in (REPO / "CHANGELOG.md").read_text("utf-8")


def test_every_requirement_is_pinned_and_torch_exactly() -> None:
    extras = project()["optional-dependencies"].values()
    requirements = project()["dependencies"] + [entry for extra in extras for entry in extra]
    named = {
        canonical(re.split(r"[^\w.-]", entry)[0])
        for entry in requirements
        if "python_version < '3.11'" not in entry
    }
    assert named - pins().keys() - {"linrec"} == set()
    assert pins()["torch"] == "2.13.0"


def test_architecture_names_every_mechanism_and_backbone() -> None:
    from linrec.backbones import BACKBONES
    from linrec.ops import MECHANISMS

    page = (REPO / "docs" / "architecture.md").read_text("utf-8")
    assert [name for name in (*MECHANISMS, *BACKBONES) if f"`{name}`" not in page] == []


def test_the_guides_name_every_baseline() -> None:
    from linrec.baselines import BASELINES

    for guide in ("training.md", "evaluating.md"):
        page = (REPO / "docs" / guide).read_text("utf-8")
        assert [name for name in BASELINES if f"| `{name}` |" not in page] == []


def test_architecture_names_files_that_exist() -> None:
    page = (REPO / "docs" / "architecture.md").read_text("utf-8")
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", page)
    assert named
    rooms = (REPO / "src" / "linrec", REPO)
    assert [name for name in named if not any((room / name).exists() for room in rooms)] == []
