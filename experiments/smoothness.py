"""Tables of what trained attention looks like."""

from __future__ import annotations

from collections.abc import Sequence

from experiments import attention
from experiments.cells import Cell, of_table
from experiments.outcomes import Options, Outcome, read
from experiments.tables import Layout, Row, table


def measured(options: Options) -> dict[Cell, Outcome]:
    """The cells whose attention was measured on the models as they are now."""
    return {
        cell: figures
        for cell in of_table("heatmap")
        if attention.is_current(cell, options)
        and (figures := read(attention.path(cell, options))) is not None
    }


def smoothness_table(options: Options) -> str:
    """RQ5 as a number: how many events the last one attends to, mean over heads and users."""
    columns = ("entropy", "effective count", "share of the history")
    measures = ("entropy", "effective", "effective_share")
    rows = []
    for cell, layer, heads in _by_layer(options):
        values = [_mean(heads, name) for name in measures]
        rows.append(Row((f"`{cell.attention}`", layer), values, note=options.note(cell)))
    return table(Layout(("attention", "layer"), columns, digits=2, highlight=False), rows)


def conditions_table(measure: str, options: Options) -> str:
    """One figure per layer and head."""
    layers = list(_by_layer(options))
    count = max((len(heads) for _, _, heads in layers), default=0) or 8
    rows = []
    for cell, layer, heads in layers:
        values = [head[measure] for head in heads] or [None] * count
        rows.append(Row((f"`{cell.attention}`", layer), values, note=options.note(cell)))
    columns = tuple(f"head {number}" for number in range(1, count + 1))
    return table(Layout(("attention", "layer"), columns, digits=3, highlight=False), rows)


def _by_layer(options: Options) -> list[tuple[Cell, str, list[Outcome]]]:
    known = measured(options)
    listed: list[tuple[Cell, str, list[Outcome]]] = []
    for cell in of_table("heatmap"):
        heads = known[cell]["heads"] if cell in known else []
        layers = sorted({head["layer"] for head in heads}) or [1, 2]
        listed += [
            (cell, str(layer), [head for head in heads if head["layer"] == layer])
            for layer in layers
        ]
    return listed


def _mean(heads: Sequence[Outcome], measure: str) -> float | None:
    return sum(head[measure] for head in heads) / len(heads) if heads else None
