"""How often users come back to an item that they have had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

COMMON = 0.05
"""The share of last events above which a training keeps seen items (`seen="auto"`)."""
CHUNK = 4_000_000  # events sorted at once: 32 MB of keys


class Repeats(NamedTuple):
    """Shares of events whose item the user had before."""

    events: float  # of all events
    last: float  # of each user's last event, if it is not the only one

    @property
    def common(self) -> bool:
        return self.last > COMMON

    @property
    def reason(self) -> str:
        """Why seen items are kept or hidden, in words."""
        relation = "more" if self.common else "not more"
        return (
            f"{self.last:.1%} of last events are items the user had before, {relation} than "
            f"{COMMON:.0%}"
        )


class RepeatCounts(NamedTuple):
    """What `Repeats` are shares of; those of several ranges of users add up."""

    events: int
    pairs: int  # of user and item
    several: int  # users with more than one event
    last: int  # of them whose last event is of an item they had before

    @property
    def shares(self) -> Repeats:
        events = 1 - self.pairs / self.events if self.events else 0.0
        return Repeats(events, self.last / self.several if self.several else 0.0)


def repeats_of(items: NDArray[np.int32], offsets: NDArray[np.int64]) -> Repeats:
    """items: each user's events in order, the users end to end; some users at a time."""
    return count_repeats(items, offsets).shares


def count_repeats(items: NDArray[np.int32], offsets: NDArray[np.int64]) -> RepeatCounts:
    pairs = last = 0
    for first, end in _chunks(offsets):
        bounds = offsets[first : end + 1]
        chunk = np.asarray(items[bounds[0] : bounds[-1]])
        lengths = np.diff(bounds)
        pairs += _distinct_pairs(chunk, lengths)
        last += _last_repeats(chunk, bounds[1:] - bounds[0] - 1, lengths)
    return RepeatCounts(int(offsets[-1]), pairs, int((np.diff(offsets) > 1).sum()), last)


def _chunks(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Ranges of users with CHUNK events together, or of one user with more."""
    first, users = 0, len(offsets) - 1
    while first < users:
        end = int(np.searchsorted(offsets, offsets[first] + CHUNK, side="right")) - 1
        end = max(end, first + 1)
        yield first, end
        first = end


def _distinct_pairs(items: NDArray[np.int32], lengths: NDArray[np.int64]) -> int:
    """Pairs of user and item, however often each occurs."""
    user = np.repeat(np.arange(len(lengths)), lengths)
    key = np.sort(user * (int(items.max(initial=0)) + 1) + items)
    return int((np.diff(key) != 0).sum()) + min(len(key), 1)


def _last_repeats(
    items: NDArray[np.int32], last: NDArray[np.int64], lengths: NDArray[np.int64]
) -> int:
    """Users whose last event is of an item that one of their earlier events has, too."""
    some = lengths > 0
    last, lengths = last[some], lengths[some]
    same = items == np.repeat(items[last], lengths)
    user = np.repeat(np.arange(len(lengths)), lengths)
    return int((np.bincount(user[same], minlength=len(lengths)) > 1).sum())
