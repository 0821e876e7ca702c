"""The table over seeds: does a difference outlast another random start?"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from experiments import comparisons
from experiments.cells import SEEDED, Cell, over_seeds
from experiments.outcomes import Options, Outcome
from experiments.quality import COLUMNS, HEADINGS, arrow, mean_of
from experiments.tables import MISSING, Layout, Row, table

TESTED = COLUMNS.index(("full", "ndcg@10"))
LABELS = ("attention", "seeds", "p over seeds", "p over users")


def seeds_table(options: Options) -> str:
    """Mean and standard deviation over seeds; tests and signs are against softmax."""
    softmax = _columns("softmax", options)
    return table(Layout(LABELS, HEADINGS), [_row(name, softmax, options) for name in SEEDED])


def _row(attention: str, softmax: list[list[float]], options: Options) -> Row:
    columns = _columns(attention, options)
    tests = [_welch(ours, other) for ours, other in zip(columns, softmax, strict=True)]
    return Row(
        (
            f"`{attention}`",
            str(len(columns[0])),
            _shown(None if attention == "softmax" else tests[TESTED]),
            _shown(_p_over_users(attention, options)),
        ),
        [fmean(values) if values else None for values in columns],
        signs=[
            arrow(p, fmean(ours) - fmean(other)) if p is not None else ""
            for p, ours, other in zip(tests, columns, softmax, strict=True)
        ],
        spread=[stdev(values) if len(values) > 1 else None for values in columns],
    )


def _columns(attention: str, options: Options) -> list[list[float]]:
    """For each column of the table, the figures of the seeds that had the whole budget."""
    outcomes = [one for cell in over_seeds(attention) if (one := complete(cell, options))]
    return [[mean_of(one, protocol, metric) for one in outcomes] for protocol, metric in COLUMNS]


def complete(cell: Cell, options: Options) -> Outcome | None:
    """The outcome of a cell that was trained for its whole budget; others are not comparable."""
    known = options.outcome(cell)
    return known if known and "evaluations" in known and options.finished(cell) else None


def _welch(ours: Sequence[float], other: Sequence[float]) -> float | None:
    """p of "no difference" between two sets of seeds, whose variances may differ."""
    if len(ours) < 2 or len(other) < 2:
        return None
    from scipy import stats

    return float(stats.ttest_ind(ours, other, equal_var=False).pvalue)


def _p_over_users(attention: str, options: Options) -> float | None:
    """The paired test over users, of the models of the first seed."""
    cell, softmax = over_seeds(attention)[0], over_seeds("softmax")[0]
    known = comparisons.comparison(cell, softmax, options) if cell != softmax else None
    if known is None or not (complete(cell, options) and complete(softmax, options)):
        return None
    protocol, metric = COLUMNS[TESTED]
    return float(known["tests"][f"test-{protocol}"][metric]["t_p"])


def _shown(p: float | None) -> str:
    return MISSING if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
