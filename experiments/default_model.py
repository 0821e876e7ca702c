"""The tables of the default model: over seeds, with other attention, and without its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Any

from experiments import comparisons
from experiments.cells import Cell, default_mechanisms, default_parts, default_seeds
from experiments.datasets import ALL
from experiments.outcomes import Options, Outcome
from experiments.quality import arrow
from experiments.seeds import complete
from experiments.tables import Layout, Row, table
from linrec.evaluation.by_gap import GAPS

Read = Callable[[Outcome], float | None]

KNOWN, UNKNOWN, POP100 = "test-full", "test-full-unknown-time", "test-pop100"

_WHOLE, _SHORT = default_seeds("ml-1m")[0], default_parts()[0]
_TIMELESS = next(cell for cell in default_parts() if cell.variant.endswith("without-times"))
GROUPED = {
    "default, request time known": (_WHOLE, KNOWN),
    "default, request time unknown": (_WHOLE, UNKNOWN),
    "short training, request time known": (_SHORT, KNOWN),
    "short training, request time unknown": (_SHORT, UNKNOWN),
    "short training, without times": (_TIMELESS, KNOWN),
}
"""What is shown by the gap before the target: its label, its cell, the evaluation."""


def _metric(evaluation: str, metric: str) -> Read:
    def read(outcome: Outcome) -> float | None:
        found = outcome["evaluations"].get(evaluation)
        return None if found is None else float(found["metrics"][metric]["mean"])

    return read


def _of_others(outcome: Outcome) -> float | None:
    found = outcome.get("with_gaps_of_others")
    return None if found is None else float(found["ndcg@10"])


FIGURES: dict[str, Read] = {
    "NDCG@10, time known": _metric(KNOWN, "ndcg@10"),
    "Recall@10, time known": _metric(KNOWN, "recall@10"),
    "NDCG@10, time unknown": _metric(UNKNOWN, "ndcg@10"),
    "Recall@10, time unknown": _metric(UNKNOWN, "recall@10"),
    "NDCG@10, gap of another user": _of_others,
    "NDCG@10, pop100, time known": _metric(POP100, "ndcg@10"),
}


def seeds_table(options: Options) -> str:
    """Means over the seeds that had the whole budget, one row per form of the data."""
    rows = []
    for name in dict.fromkeys(cell.dataset for cell in default_seeds()):
        known = [one for cell in default_seeds(name) if (one := complete(cell, options))]
        if not known:
            continue
        columns = [[value for one in known if (value := read(one)) is not None]
                   for read in FIGURES.values()]  # fmt: skip
        items = f"{known[0]['evaluations'][KNOWN]['n_items']:,}"
        rows.append(
            Row(
                (ALL[name].title, items, str(len(known))),
                [fmean(values) if values else None for values in columns],
                spread=[stdev(values) if len(values) > 1 else None for values in columns],
            )
        )
    layout = Layout(("data", "items", "seeds"), tuple(FIGURES), highlight=False)
    return table(layout, rows) if rows else ""


def mechanisms_table(options: Options) -> str:
    """Signs: against linrec-decay."""
    return _table(default_mechanisms(), lambda cell: f"`{cell.attention}`", "attention", options)


def parts_table(options: Options) -> str:
    """Signs: against the model with all of its parts."""
    return _table(default_parts(), label_of, "model", options)


def gaps_table(options: Options) -> str:
    """NDCG@10 by the time between the target and the event before it."""
    found = by_gap(options)
    counts = next(iter(found.values()), {})
    columns = tuple(f"{gap} ({one['n_users']:,})" for gap, one in counts.items())
    rows = [
        Row((label,), [groups[gap]["metrics"]["ndcg@10"] for gap in counts],
            note=options.note(GROUPED[label][0]))
        for label, groups in found.items()
    ]  # fmt: skip
    return table(Layout(("model",), columns, highlight=False), rows) if rows else ""


def by_gap(options: Options) -> dict[str, dict[str, Any]]:
    """Label -> the figures of each gap, of the models that are trained; seed 0."""
    found = {}
    for label, (cell, name) in GROUPED.items():
        known = complete(cell, options)
        if known is not None and name in known["evaluations"]:
            groups = known["evaluations"][name]["by_gap"]
            found[label] = {gap: groups[gap] for gap in GAPS if gap in groups}
    return found


def label_of(cell: Cell) -> str:
    """`short-without-head-norm` -> without head norm."""
    words = cell.variant.removeprefix("short").replace("-", " ").strip()
    return words or "the default model"


def _table(
    cells: Sequence[Cell], label: Callable[[Cell], str], heading: str, options: Options
) -> str:
    if not any(options.outcome(cell) for cell in cells):
        return ""
    rows = []
    for cell in cells:
        known = options.outcome(cell)
        values = [None if known is None or "evaluations" not in known else read(known)
                  for read in FIGURES.values()]  # fmt: skip
        sign = _sign(cell, cells[0], options)
        signs = [sign, *("" for _ in values[1:])]
        rows.append(Row((label(cell),), values, signs=signs, note=options.note(cell)))
    return table(Layout((heading,), tuple(FIGURES)), rows)


def _sign(cell: Cell, other: Cell, options: Options) -> str:
    known = comparisons.comparison(cell, other, options)
    if known is None:
        return ""
    test = known["tests"][KNOWN]["ndcg@10"]
    return arrow(test["t_p"], test["difference"]["mean"])
