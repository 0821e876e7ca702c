"""Figures by the time between a target and the event before it.

Targets sent together with the event before them are easy, and where they are many they hide how
well a model serves users who come back later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.sequences import IntArray
from linrec.data.dataset.splits import Holdout, Owners
from linrec.evaluation.metrics import means

GAPS = ("0 s", "up to a minute", "up to an hour", "up to a day", "longer")
_BOUNDS = (0.0, 60.0, 3_600.0, 86_400.0)
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GapFigures:
    """The figures of the users whose target came after such a gap."""

    n_users: int  # or rows, where a user has several
    metrics: dict[str, float]


def figures_by_gap(holdout: Holdout, ranks: IntArray, ks: tuple[int, ...]) -> dict[str, GapFigures]:
    """Each gap that occurs with its figures; empty where the times are unknown or only an order."""
    gaps = seconds_before_target(holdout)
    if gaps is None:
        return {}
    place = np.where(gaps >= 0, np.searchsorted(_BOUNDS, gaps), len(GAPS))
    figures = {}
    for index, name in enumerate((*GAPS, UNKNOWN)):
        rows = np.flatnonzero(place == index)
        if len(rows):
            targets, row = holdout.targets_of(rows)
            figures[name] = GapFigures(
                len(rows), means(ranks[targets], ks, Owners(row, np.arange(len(rows))))
            )
    return figures


def seconds_before_target(holdout: Holdout) -> NDArray[np.float64] | None:
    """[rows], from the newest event of each history to its target; None without real times."""
    rows = holdout.histories
    if holdout.at is None or rows.times is None:
        return None
    newest = np.where(rows.lengths > 0, rows.times[np.maximum(rows.ends - 1, 0)], np.nan)
    return np.asarray(holdout.at - newest, dtype=np.float64)
