"""The order of a user's events with equal times: whether it is a sort by item id, which leaks.

Within a basket nothing came first. Where the log has each basket sorted by item id, the next item
is one with a higher id, which a model learns and no user ever told it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

FAR_FROM_HALF = 0.25
# fewer pairs only tell if they are as unlikely as 75 of 100: five standard deviations from a half
MIN_PAIRS, MIN_DEVIATIONS = 100, 5.0


class TieCounts(NamedTuple):
    """Tied neighbours of different items; those of several ranges of users add up."""

    pairs: int
    ascending: tuple[int, ...]  # by each of the orders of the ids

    @property
    def share(self) -> float | None:
        if not self.pairs:
            return None
        shares = [count / self.pairs for count in self.ascending]
        share = max(shares, key=lambda one: abs(one - 0.5))
        deviations = 2 * np.sqrt(self.pairs) * abs(share - 0.5)
        return share if self.pairs >= MIN_PAIRS or deviations >= MIN_DEVIATIONS else None


def ascending_share(
    items: NDArray[np.int32], tied: NDArray[np.bool_], ids: pl.Series
) -> float | None:
    """The share of tied neighbours in ascending order of their ids; None if too few to tell.

    items: [events], positions in `ids`.  tied: [events - 1], whether neighbours have one user, one
    time and one group. A descending order gives a share near 0. Random order gives a half.
    """
    return count_ties(items, tied, orders_of(ids)).share


def count_ties(
    items: NDArray[np.int32], tied: NDArray[np.bool_], orders: Sequence[NDArray[np.int64]]
) -> TieCounts:
    before, after = items[:-1][tied], items[1:][tied]
    differ = before != after
    before, after = before[differ], after[differ]
    ascending = tuple(int((place[before] < place[after]).sum()) for place in orders)
    return TieCounts(len(before), ascending)


def is_sorted(share: float | None) -> bool:
    """Whether the share is far from the half that a random order gives."""
    return share is not None and abs(share - 0.5) > FAR_FROM_HALF


def orders_of(ids: pl.Series) -> list[NDArray[np.int64]]:
    """The place of each id in the order of the ids, and of the numbers in ids that are text."""
    orders = [_places(ids)]
    if ids.dtype == pl.String:
        numbers = ids.cast(pl.Int64, strict=False)
        if not numbers.has_nulls():
            orders.append(_places(numbers))
    return orders


def _places(ids: pl.Series) -> NDArray[np.int64]:
    places = np.empty(len(ids), np.int64)
    places[ids.arg_sort().to_numpy()] = np.arange(len(ids))
    return places
