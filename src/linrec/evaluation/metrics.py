"""Metrics of ranks (0 = best), and how much of the catalogue is recommended.

Each metric is one number per row (a history and the set of items that came next), and a user's
figure is the mean over their rows. With n targets in a row, of which the list has the first k:

- Recall@k: targets in the list / n;
- Hit@k: 1 if any target is in the list;
- NDCG@k: the sum of 1 / log2(rank + 2) over the targets in the list / the same sum of a list that
  begins with min(k, n) targets;
- MAP@k: the sum over the targets in the list of (targets up to its position / position), positions
  from 1, / min(k, n);
- MRR@k: 1 / position of the first target.

A rank is a position in the list that the user would see, so the other targets of a row count as
items before it. With one target, Recall@k is the hit rate, MAP@k is MRR@k and the ideal DCG is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.sequences import IntArray
from linrec.data.dataset.splits import Owners
from linrec.evaluation.resampling import Interval, bootstrap
from linrec.scoring import MISS
from linrec.types import InputError

Values = NDArray[np.float64]
Gain = Callable[[IntArray], Values]


def _discount(ranks: IntArray) -> Values:
    return np.asarray(1.0 / np.log2(ranks + 2.0), dtype=np.float64)


def _reciprocal(ranks: IntArray) -> Values:
    return np.asarray(1.0 / (ranks + 1.0), dtype=np.float64)


def _one(ranks: IntArray) -> Values:
    return np.ones(len(ranks))


METRICS: dict[str, Gain] = {  # the gain of a rank below the cut-off k, of the only target
    "recall": _one,
    "hit": _one,
    "ndcg": _discount,
    "map": _reciprocal,
    "mrr": _reciprocal,
}

OF_SEVERAL = ("hit", "map")
"""Metrics that say nothing new where every row has one target."""


def recall(ranks: IntArray, k: int) -> Values:
    """1 where the target is among the first k, for each user."""
    return per_user(f"recall@{k}", ranks)


def ndcg(ranks: IntArray, k: int) -> Values:
    """1 / log2(rank + 2) where the target is among the first k, for each user."""
    return per_user(f"ndcg@{k}", ranks)


def mrr(ranks: IntArray, k: int | None = None) -> Values:
    """1 / (rank + 1) where the target is among the first k (None: anywhere), for each user."""
    return per_user("mrr" if k is None else f"mrr@{k}", ranks)


def per_user(name: str, ranks: IntArray, owners: Owners | None = None) -> Values:
    """The metric named `name` ("ndcg@10", "mrr", ...) of each user.

    ranks: [targets].  owners: whose they are; None: one of each user.
    """
    values = per_row(name, ranks, None if owners is None else owners.rows)
    return values if owners is None else owners.user_means(values)


def per_row(name: str, ranks: IntArray, rows: IntArray | None = None) -> Values:
    """The metric of each row.  rows: [targets], ascending; None: one target each."""
    family, cut = parse(name)
    # a hidden target is beyond the end of every list, however long
    hits = ranks < (MISS if cut is None else min(cut, MISS))
    gains = np.where(hits, METRICS[family](ranks), 0.0)
    if rows is None:
        return gains
    counts = np.bincount(rows)
    if family in ("hit", "mrr"):
        return np.asarray(np.maximum.reduceat(gains, np.cumsum(counts) - counts))
    if family == "map":
        gains = np.where(hits, _precision(ranks, rows, counts), 0.0)
    listed = counts if cut is None else np.minimum(counts, cut)
    best = {"recall": counts, "map": listed, "ndcg": _ideal(listed)}[family]
    return np.asarray(np.bincount(rows, gains) / best)


def _precision(ranks: IntArray, rows: IntArray, counts: IntArray) -> Values:
    """The share of targets among the items up to and including each target, [targets]."""
    order = np.lexsort((ranks, rows))
    before = np.empty(len(ranks), np.int64)  # targets of the row before it
    before[order] = np.arange(len(ranks)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray((before + 1.0) / (ranks + 1.0))


def _ideal(listed: IntArray) -> Values:
    """The DCG of a list that begins with so many targets."""
    sums = np.cumsum(_discount(np.arange(int(listed.max(initial=1)))))
    return np.asarray(sums[listed - 1])


def parse(name: str) -> tuple[str, int | None]:
    """The family of a metric and its cut-off k; only MRR may go without one."""
    family, at, cut = name.partition("@")
    if family in METRICS and cut.isdecimal() and int(cut) > 0:
        return family, int(cut)
    if family == "mrr" and not at:
        return family, None
    choices = ", ".join(f"{metric}@10" for metric in METRICS)
    raise InputError(f"unknown metric {name!r}; choose from {choices} (any k), or mrr")


def metric_names(ks: Iterable[int], owners: Owners | None = None) -> list[str]:
    """Every metric at every k, then MRR without a cut-off."""
    cuts, several = list(ks), owners is not None and owners.several
    families = [family for family in METRICS if several or family not in OF_SEVERAL]
    return [f"{family}@{k}" for family in families for k in cuts] + ["mrr"]


def means(ranks: IntArray, ks: Iterable[int], owners: Owners | None = None) -> dict[str, float]:
    names = metric_names(ks, owners)
    return {name: float(per_user(name, ranks, owners).mean()) for name in names}


def intervals(
    ranks: IntArray, ks: Iterable[int], seed: int = 0, owners: Owners | None = None
) -> dict[str, Interval]:
    """Every metric's mean over the users with its bootstrap interval."""
    names = metric_names(ks, owners)
    return {name: bootstrap(per_user(name, ranks, owners), seed) for name in names}


def coverage(recommended: IntArray) -> float:
    """The share of the catalogue in anyone's list.  recommended: counts, [n_items + 1]."""
    return float(np.count_nonzero(recommended[1:]) / max(len(recommended) - 1, 1))
