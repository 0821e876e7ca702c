"""Figures of targets that the user had had before, and of new ones.

A baseline of personal counts finds only the first kind. One figure over both hides what a model
does for either.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.sequences import IntArray
from linrec.evaluation.metrics import means

SEEN, NEW = "seen before", "new"


@dataclass(frozen=True, slots=True)
class SeenFigures:
    """The mean over targets of one kind, each target by itself."""

    n_targets: int
    metrics: dict[str, float]
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)  # the same of each


def figures_by_seen(
    seen: NDArray[np.bool_], ranks: IntArray, baselines: dict[str, IntArray], ks: tuple[int, ...]
) -> dict[str, SeenFigures]:
    """seen: [targets]. Empty unless there are targets of both kinds."""
    figures = {}
    for name, some in ((SEEN, seen), (NEW, ~seen)):
        if some.any():
            beside = {other: means(of[some], ks) for other, of in baselines.items()}
            figures[name] = SeenFigures(int(some.sum()), means(ranks[some], ks), beside)
    return figures if len(figures) == 2 else {}
