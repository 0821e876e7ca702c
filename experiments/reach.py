"""Do long histories pay? The default model by how much of a history it reads."""

from __future__ import annotations

from experiments.cells import Cell, reach
from experiments.comparisons import comparison
from experiments.outcomes import Options, Outcome, read
from experiments.quality import arrow, span
from experiments.tables import MISSING, Layout, Row, table


def reach_table(dataset: str, options: Options) -> str:
    """One row per attention and reach; empty if none is trained. Signs: against the whole."""
    cells = reach(dataset)
    known = {cell: found for cell in cells if (found := options.outcome(cell))}
    if not known:
        return ""
    groups = next(iter(known.values()))["by_length"]
    columns = ("all", *(f"{span(one['from'], one['to'])} ({one['users']:,})" for one in groups))
    whole = next(cell for cell in cells if cell.overrides["max_length"] == 0)
    rows = [_row(cell, outcome, whole, options) for cell, outcome in known.items()]
    return table(Layout(("attention", "s per epoch", "reads"), columns, highlight=False), rows)


def reach_figures(options: Options) -> dict[str, dict[str, list[tuple[str, float]]]]:
    """By dataset and attention: what was read, and NDCG@10 over all users."""
    figures: dict[str, dict[str, list[tuple[str, float]]]] = {}
    for cell in reach():
        if known := options.outcome(cell):
            length = cell.overrides["max_length"]
            found = next(iter(known["evaluations"].values()))["metrics"]["ndcg@10"]["mean"]
            points = figures.setdefault(cell.dataset, {}).setdefault(cell.attention, [])
            points.append((f"{length:,}" if length else "all", found))
    return figures


def _row(cell: Cell, outcome: Outcome, whole: Cell, options: Options) -> Row:
    figures = next(iter(outcome["evaluations"].values()))
    values = [figures["metrics"]["ndcg@10"]["mean"]]
    values += [group["ndcg@10"] for group in outcome["by_length"]]
    timed = read(options.results / "reach" / f"{cell.name}.json")
    seconds = MISSING if timed is None else f"{timed['train_seconds']:,.0f}"
    length = cell.overrides["max_length"]
    labels = (f"`{cell.attention}`", seconds, f"last {length:,}" if length else "whole history")
    return Row(
        labels,
        values,
        signs=[_sign(cell, whole, options), *("" for _ in values[1:])],
        note=options.note(cell),
    )


def _sign(cell: Cell, whole: Cell, options: Options) -> str:
    found = comparison(cell, whole, options) if cell != whole else None
    if found is None:
        return ""
    test = next(iter(found["tests"].values()))["ndcg@10"]
    return arrow(test["t_p"], test["difference"]["mean"])
