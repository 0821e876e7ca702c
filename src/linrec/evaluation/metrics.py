"""Metrics of ranks (0 = best), and statistics of the recommended lists.

With one relevant item per user, Recall@k is the hit rate, the ideal DCG is 1, and MRR@k is the
reciprocal of the item's position in the first k, counted from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.sequences import IntArray
from linrec.evaluation.resampling import Interval, bootstrap
from linrec.scoring import MISS
from linrec.types import InputError

Gain = Callable[[IntArray], NDArray[np.float64]]


def _discount(ranks: IntArray) -> NDArray[np.float64]:
    return np.asarray(1.0 / np.log2(ranks + 2.0), dtype=np.float64)


def _reciprocal(ranks: IntArray) -> NDArray[np.float64]:
    return np.asarray(1.0 / (ranks + 1.0), dtype=np.float64)


METRICS: dict[str, Gain] = {  # the gain of a rank below the cut-off k
    "recall": lambda ranks: np.ones(len(ranks)),
    "ndcg": _discount,
    "mrr": _reciprocal,
}


def recall(ranks: IntArray, k: int) -> NDArray[np.float64]:
    """1 where the target is among the first k, for each user."""
    return per_user(f"recall@{k}", ranks)


def ndcg(ranks: IntArray, k: int) -> NDArray[np.float64]:
    """1 / log2(rank + 2) where the target is among the first k, for each user."""
    return per_user(f"ndcg@{k}", ranks)


def mrr(ranks: IntArray, k: int | None = None) -> NDArray[np.float64]:
    """1 / (rank + 1) where the target is among the first k (None: anywhere), for each user."""
    return per_user("mrr" if k is None else f"mrr@{k}", ranks)


def per_user(name: str, ranks: IntArray) -> NDArray[np.float64]:
    """The metric named `name` ("ndcg@10", "mrr", ...) of each user."""
    gain, k = parse(name)
    # a hidden target is beyond the end of every list, however long
    return np.where(ranks < (MISS if k is None else min(k, MISS)), gain(ranks), 0.0)


def parse(name: str) -> tuple[Gain, int | None]:
    """The gain of a metric and its cut-off k; only MRR may go without one."""
    family, at, cut = name.partition("@")
    if family in METRICS and cut.isdecimal() and int(cut) > 0:
        return METRICS[family], int(cut)
    if family == "mrr" and not at:
        return METRICS[family], None
    choices = ", ".join(f"{metric}@10" for metric in METRICS)
    raise InputError(f"unknown metric {name!r}; choose from {choices} (any k), or mrr")


def metric_names(ks: Iterable[int]) -> list[str]:
    """Every metric at every k, then MRR without a cut-off."""
    cuts = list(ks)
    return [f"{family}@{k}" for family in METRICS for k in cuts] + ["mrr"]


def means(ranks: IntArray, ks: Iterable[int]) -> dict[str, float]:
    return {name: float(per_user(name, ranks).mean()) for name in metric_names(ks)}


def intervals(ranks: IntArray, ks: Iterable[int], seed: int = 0) -> dict[str, Interval]:
    """Every metric's mean with its bootstrap interval."""
    return {name: bootstrap(per_user(name, ranks), seed) for name in metric_names(ks)}


def coverage(recommended: IntArray) -> float:
    """The share of the catalogue in anyone's list.  recommended: counts, [n_items + 1]."""
    return float(np.count_nonzero(recommended[1:]) / max(len(recommended) - 1, 1))


def mean_popularity(recommended: IntArray, popularity: IntArray) -> float:
    """The mean number of training events of a recommended item."""
    listed = int(recommended.sum())
    return float(recommended @ popularity / listed) if listed else 0.0


def list_figures(recommended: dict[int, IntArray], popularity: IntArray) -> dict[str, float]:
    """Coverage and mean popularity of the lists of each length."""
    figures = {f"coverage@{k}": coverage(counts) for k, counts in recommended.items()}
    for k, counts in recommended.items():
        figures[f"popularity@{k}"] = mean_popularity(counts, popularity)
    return figures
