"""Markdown tables with the best figures highlighted and footnotes on how they were trained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAPER: dict[str, Any] = json.loads((Path(__file__).parent / "paper.json").read_text("utf-8"))
"""The paper's figures, as printed there."""

MISSING = "\N{EN DASH}"


@dataclass
class Row:
    """A line of figures: its labels, our values, the paper's values, signs and a footnote."""

    labels: tuple[str, ...]
    values: Sequence[float | None]
    paper: Sequence[float | None] = ()
    signs: Sequence[str] = ()
    note: str = ""
    ranked: bool = True  # whether it can be the best; baselines cannot
    spread: Sequence[float | None] = ()  # standard deviations, where a value is a mean over seeds


@dataclass
class Layout:
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    digits: int = 4
    highlight: bool = True
    notes: dict[str, str] = field(default_factory=dict)  # footnote -> its letter


def table(layout: Layout, rows: Sequence[Row]) -> str:
    """The best figure of each column is bold, the second underlined; notes follow below."""
    order = [_best_two(rows, column) if layout.highlight else {} for column in _range(layout)]
    lines = [line((*layout.labels, *layout.columns)), "|" + "---|" * _width(layout)]
    for number, row in enumerate(rows):
        cells = [
            _entry(row, column, layout, order[column].get(number, "")) for column in _range(layout)
        ]
        lines.append(line((*_labels(row, layout.notes), *cells)))
    notes = [f"<sup>{letter}</sup> {note}." for note, letter in layout.notes.items()]
    return "\n".join([*lines, *(["", " ".join(notes)] if notes else [])])


def line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _range(layout: Layout) -> range:
    return range(len(layout.columns))


def _width(layout: Layout) -> int:
    return len(layout.labels) + len(layout.columns)


def _labels(row: Row, notes: dict[str, str]) -> tuple[str, ...]:
    if not row.note:
        return row.labels
    letter = notes.setdefault(row.note, _letter(len(notes)))
    return (*row.labels[:-1], f"{row.labels[-1]}<sup>{letter}</sup>")


def _letter(count: int) -> str:
    return chr(ord("a") + count % 26) * (1 + count // 26)


def _entry(row: Row, column: int, layout: Layout, rank: str) -> str:
    value = row.values[column]
    text = MISSING if value is None else f"{value:,.{layout.digits}f}"
    if rank:
        text = f"**{text}**" if rank == "best" else f"<u>{text}</u>"
    spread = row.spread[column] if row.spread else None
    if spread is not None:
        text += f" ± {spread:,.{layout.digits}f}"
    if row.signs and row.signs[column]:
        text += f" {row.signs[column]}"
    paper = row.paper[column] if row.paper else None
    return text if paper is None else f"{text} ({paper:,.{layout.digits}f})"


def _best_two(rows: Sequence[Row], column: int) -> dict[int, str]:
    """Which rows hold the best and the second best figure of a column."""
    values = [
        (value, number)
        for number, row in enumerate(rows)
        if row.ranked and (value := row.values[column]) is not None
    ]
    order = sorted(values, key=lambda pair: (-pair[0], pair[1]))
    if len(order) < 2:
        return {}
    return {order[0][1]: "best", order[1][1]: "second"}
