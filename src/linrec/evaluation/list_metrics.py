"""What lists are like beyond their hits: one number per row, for each length k.

- Popularity@k: the mean number of training events of the listed items.
- Novelty@k: the mean of -log2 of an item's share of the training events, in bits. Each item counts
  one event more than it has, so that items without events have a novelty too.
- Diversity@k: the mean of 1 - similarity over all pairs of listed items (intra-list diversity);
  `linrec.data.dataset.similarity` defines it. 0 for a list of one item. Only where items have
  features or vectors.
- Miscalibration@k: how far the list is from the popularity of what the user has had: the
  Jensen-Shannon divergence, with logarithms to base 2, of the shares of popular, middling and rare
  items in the history (each event counts) and in the list. 0 = equal shares, 1 = nothing in common.
  In the order of training events, popular items are those that have the first fifth of all events,
  rare ones the last fifth (user popularity deviation, Abdollahpouri et al., UMAP '21).

An empty list has 0 of each. Coverage@k, the share of the catalogue in anyone's list, is one number
for all rows, and has no interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.sequences import IntArray, Sequences, events_of
from linrec.data.dataset.similarity import ItemSimilarity
from linrec.data.dataset.splits import Owners
from linrec.evaluation.metrics import coverage
from linrec.evaluation.resampling import Interval, bootstrap
from linrec.types import PAD

Values = NDArray[np.float64]

POPULAR, RARE = 0.2, 0.8  # shares of all events, from the most popular item on
GROUPS = 3
LIST_METRICS = ("popularity", "novelty", "diversity", "miscalibration")
AT_ONCE = 4_000_000  # cosines of a piece


@dataclass(frozen=True, slots=True, eq=False)
class ListMeasures:
    """What is known of the items."""

    popularity: IntArray  # [n_items + 1], training events
    novelty: Values  # [n_items + 1]
    groups: IntArray  # [n_items + 1], 0 popular, 1 middling, 2 rare
    similarity: ItemSimilarity | None

    @classmethod
    def of(cls, popularity: IntArray, similarity: ItemSimilarity | None = None) -> ListMeasures:
        counts = popularity[1:] + 1.0
        novelty = np.concatenate([[0.0], -np.log2(counts / max(counts.sum(), 1.0))])
        return cls(popularity, novelty, popularity_groups(popularity), similarity)

    def of_rows(
        self, items: IntArray, ks: Iterable[int], histories: Sequences
    ) -> dict[str, Values]:
        """Each metric at each k, [B].  items: [B, longest k], PAD beyond the end of a list."""
        cuts, past = list(ks), self._shares(histories)
        figures = {f"popularity@{k}": _mean(self.popularity, items[:, :k]) for k in cuts}
        figures |= {f"novelty@{k}": _mean(self.novelty, items[:, :k]) for k in cuts}
        if self.similarity is not None:
            figures |= {f"diversity@{k}": diversity(items[:, :k], self.similarity) for k in cuts}
        for k in cuts:
            figures[f"miscalibration@{k}"] = divergence(past, self._shares_of(items[:, :k]))
        return figures

    def _shares(self, histories: Sequences) -> Values:
        counts = np.zeros((len(histories), GROUPS), np.int64)
        done = 0
        for some in histories.chunks():
            rows, items = events_of(some)
            counts[done : done + len(some)] = _counted(rows, self.groups[items], len(some))
            done += len(some)
        return _share(counts)

    def _shares_of(self, items: IntArray) -> Values:
        rows, columns = np.nonzero(items != PAD)
        return _share(_counted(rows, self.groups[items[rows, columns]], len(items)))


def list_intervals(
    recommended: dict[int, IntArray], listed: dict[str, Values], owners: Owners | None, seed: int
) -> dict[str, Interval]:
    """Coverage, and the mean over users of each other metric with its bootstrap interval."""
    figures = {f"coverage@{k}": Interval(coverage(counts)) for k, counts in recommended.items()}
    return figures | {
        name: bootstrap(of_users(values, owners), seed) for name, values in listed.items()
    }


def list_means(
    recommended: dict[int, IntArray], listed: dict[str, Values], owners: Owners | None
) -> dict[str, float]:
    """The same without intervals."""
    figures = {f"coverage@{k}": coverage(counts) for k, counts in recommended.items()}
    return figures | {
        name: float(of_users(values, owners).mean()) for name, values in listed.items()
    }


def of_users(values: Values, owners: Owners | None) -> Values:
    """[rows] -> [users]."""
    return values if owners is None else owners.user_means(values)


def popularity_groups(popularity: IntArray) -> IntArray:
    """0 for items with the first fifth of all events, 2 with the last fifth, 1 between."""
    order = np.argsort(-popularity[1:], kind="stable") + 1
    before = np.cumsum(popularity[order]) - popularity[order]  # events of more popular items
    share = before / max(int(popularity[1:].sum()), 1)
    groups = np.zeros(len(popularity), np.int64)
    groups[order] = np.where(share < POPULAR, 0, np.where(share < RARE, 1, 2))
    return groups


def diversity(items: IntArray, similarity: ItemSimilarity) -> Values:
    """The mean of 1 - cosine over the pairs of each list, [B]."""
    result, k = np.zeros(len(items)), items.shape[1]
    rows = max(1, AT_ONCE // max(k * k, 1))
    for start in range(0, len(items), rows):
        part = items[start : start + rows]
        real = part != PAD
        both = real[:, :, None] & real[:, None, :] & ~np.eye(k, dtype=bool)
        apart = np.where(both, 1.0 - similarity.between(part, part), 0.0).sum((1, 2))
        result[start : start + rows] = apart / np.maximum(both.sum((1, 2)), 1)
    return result


def divergence(one: Values, other: Values) -> Values:
    """Jensen-Shannon, to base 2, of shares [B, groups]; 0 where a row of either is empty."""
    middle = (one + other) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [
            np.where(share > 0, share * np.log2(share / middle), 0.0) for share in (one, other)
        ]
    value = (parts[0].sum(1) + parts[1].sum(1)) / 2
    empty = (one.sum(1) == 0) | (other.sum(1) == 0)
    return np.asarray(np.where(empty, 0.0, np.clip(value, 0.0, 1.0)))


def _counted(rows: IntArray, groups: IntArray, n_rows: int) -> IntArray:
    """The items of each group in each row, [rows, groups]."""
    counts = np.bincount(rows * GROUPS + groups, minlength=n_rows * GROUPS)
    return counts.reshape(-1, GROUPS)


def _share(counts: IntArray) -> Values:
    return np.asarray(counts / np.maximum(counts.sum(1, keepdims=True), 1))


def _mean(values: NDArray[np.generic], items: IntArray) -> Values:
    real = items != PAD
    return np.asarray(np.where(real, values[items], 0).sum(1) / np.maximum(real.sum(1), 1))
