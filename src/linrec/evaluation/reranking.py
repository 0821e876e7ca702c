"""Lists re-ranked for diversity: maximal marginal relevance (Carbonell and Goldstein, SIGIR '98).

The list is chosen item by item from a pool, the first `pool_size(k)` items by score. Next is the
item with the greatest

    (1 - diversity) * relevance - diversity * similarity to the most similar item chosen so far

where the relevance is the score, scaled so that the best item of the pool has 1 and the last 0
(all 1 if they are equal), and the similarity is that of `linrec.data.dataset.similarity`. The first
item is always the one with the best score; of equals the one that ranks before. Diversity 0 leaves
the ranking as it is. A shorter list is the beginning of a longer one from the same pool.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from linrec.data.dataset.sequences import IntArray
from linrec.data.dataset.similarity import ItemSimilarity
from linrec.scoring import MISS, top_k
from linrec.types import PAD, InputError, argument

MIN_POOL = 100
Floats = NDArray[np.floating]


def pool_size(k: int) -> int:
    """The number of items that a list of k is chosen from: the same for all k up to 50."""
    return max(MIN_POOL, 2 * k)


def check_diversity(value: float) -> None:
    if not isinstance(value, int | float) or not 0 <= value <= 1:  # NaN is not either
        raise InputError(
            f"{argument('diversity', repr(value))} must be a number between 0 (the ranking as it "
            "is) and 1"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """What is shown to each row, and the pool it was chosen from."""

    items: IntArray  # [B, k], PAD beyond the end
    scores: Floats
    pool: IntArray  # [B, P]


@dataclass(frozen=True, slots=True, eq=False)
class Reranker:
    """How strongly to re-rank, and what items are compared by."""

    diversity: float  # 0 < diversity <= 1
    similarity: ItemSimilarity

    @classmethod
    def of(cls, diversity: float | None, similarity: ItemSimilarity | None) -> Reranker | None:
        """None if nothing is to be re-ranked."""
        check_diversity(diversity or 0.0)
        if not diversity:
            return None
        if similarity is None:
            raise InputError(
                f"{argument('diversity', diversity)} needs items that can be compared, and they "
                f"have neither features nor vectors; prepare the dataset with "
                f"{argument('items')} set to a file of items and train again, or leave "
                f"{argument('diversity')} out"
            )
        return cls(diversity, similarity)

    @property
    def note(self) -> str:
        """What a reader of the list has to know."""
        by = " and ".join(self.similarity.by)
        return f"re-ranked for diversity {self.diversity:g} by {by}; scores are those of the model"

    def choose(self, items: IntArray, scores: Floats, k: int) -> IntArray:
        """Positions in the pool of the k that are shown, in their order, [B, k]; -1 beyond its end.

        items, scores: [B, P], a pool for each row, best first, PAD where it has no more.
        """
        weighted = (1.0 - self.diversity) * relevance(items, scores)
        closest = np.zeros(items.shape, np.float32)
        left, rows = items != PAD, np.arange(len(items))
        chosen = np.full((len(items), k), -1, np.int64)
        for place in range(min(k, items.shape[1])):
            gain = np.where(left, weighted - self.diversity * closest, -np.inf)
            best = gain.argmax(1)
            chosen[:, place] = np.where(left[rows, best], best, -1)
            left[rows, best] = False
            added = self.similarity.between(items, items[rows, best][:, None])[:, :, 0]
            # nothing is chosen yet: a first cosine below 0 counts as it is
            closest = added if not place else np.maximum(closest, added)
        return chosen


def relevance(items: IntArray, scores: Floats) -> NDArray[np.float32]:
    """The scores of a pool from 0 to 1, row by row: [B, P], best first."""
    real = (items != PAD) & np.isfinite(scores)
    last = np.where(real, scores, np.inf).min(1, keepdims=True, initial=np.inf)
    best = np.where(real, scores, -np.inf).max(1, keepdims=True, initial=-np.inf)
    span = best - last
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.where(span > 0, (scores - last) / span, 1.0)
    return np.asarray(np.nan_to_num(np.clip(scaled, 0.0, 1.0)), np.float32)


def lists_of(scores: Tensor, k: int, reranker: Reranker | None) -> Lists:
    """The lists of length k, re-ranked or not."""
    if reranker is None:
        items, best = (part.cpu().numpy() for part in top_k(scores, k))
        return Lists(items, best, items)
    found = top_k(scores, min(pool_size(k), scores.shape[1] - 1))
    pool, best = (part.cpu().numpy() for part in found)
    chosen = reranker.choose(pool, best, k)
    shown = np.where(chosen >= 0, np.take_along_axis(best, chosen, 1), -np.inf)
    return Lists(np.where(chosen >= 0, np.take_along_axis(pool, chosen, 1), PAD), shown, pool)


def reranked_targets(
    ranks: IntArray, targets: IntArray, rows: IntArray, own: Floats, lists: Lists
) -> IntArray:
    """The ranks of targets after re-ranking, [T].

    After the list come all other items, in the order of their scores. Ties count against a target
    as before: it comes after all items of its score that it came before.

    ranks: before.  rows: of `lists`.  own: the scores of the targets.
    """
    in_pool, in_list = lists.pool[rows] == targets[:, None], lists.items[rows] == targets[:, None]
    ties = ranks - in_pool.argmax(1)
    moved_up = ((lists.scores[rows] < own[:, None]) & (lists.items[rows] != PAD)).sum(1)
    after = np.where(in_list.any(1), in_list.argmax(1) + ties, ranks + moved_up)
    return np.where(ranks >= MISS, ranks, after)
