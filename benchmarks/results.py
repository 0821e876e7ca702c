"""Where figures are kept, and how pages take them from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT

OUT_FOLDER = ROOT / "results" / "benchmarks"
PAGE = ROOT / "docs" / "performance.md"


def with_row(out: Path, command: str, row: dict[str, Any], same: tuple[str, ...]) -> None:
    """Add a row to the file, in place of one that agrees in the fields `same`."""
    rows = json.loads(out.read_text("utf-8"))["rows"] if out.is_file() else []
    others = [old for old in rows if any(old[name] != row[name] for name in same)]
    rows = sorted([*others, row], key=lambda one: tuple(one[name] for name in same))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n", "utf-8")
    print(f"wrote {out}")


def between(page: str, name: str, content: str) -> str:
    """The page with what stands between the markers of that name made anew."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, rest = page.split(begin)
    return before + begin + content + end + rest.split(end)[1]


def where(outcome: dict[str, Any]) -> str:
    """On what the figures were made, and by which command."""
    threads = f"{outcome['threads']} thread{'' if outcome['threads'] == 1 else 's'}"
    return (
        f"{threads} of {outcome['machine']}, {outcome['date']}, commit {outcome['commit']}: "
        f"`{outcome['command'].strip()}`."
    )


def picture(title: str, plot: Path) -> str:
    """A plot of the results, as the page links to it."""
    return f"![{title}](../{plot.relative_to(ROOT).as_posix()})"
