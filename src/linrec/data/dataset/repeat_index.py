"""The counts of past items before every event of a training, made once for all epochs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from linrec.data.dataset.half_lives import half_lives, remaining
from linrec.data.dataset.past_counts import Floats
from linrec.data.dataset.seen import SeenIndex
from linrec.data.dataset.sequences import IntArray, Sequences, concatenated_ranges, events_of
from linrec.types import PastCounts


@dataclass(frozen=True, slots=True)
class RepeatIndex:
    """For each event the counts of its item right after it, and its item's place in a list."""

    rows: Sequences
    seen: SeenIndex
    slots: NDArray[np.int32]  # [events], position of the item among its row's distinct items
    sums: NDArray[np.float32]  # [events, K]

    @classmethod
    def of(cls, rows: Sequences) -> RepeatIndex:
        """rows: whole histories, one row per user, in the order of the array."""
        slots = np.zeros(len(rows.items), np.int32)
        sums = np.zeros((len(rows.items), half_lives(rows.times is not None)), np.float32)
        for some in rows.chunks():
            events = concatenated_ranges(some.starts, some.lengths)
            slots[events], sums[events] = _slots_and_sums(some, events)
        return cls(rows, SeenIndex.of(rows), slots, sums)

    def before(self, events: IntArray, unknown: NDArray[np.bool_]) -> PastCounts:
        """Before each of these events, given by their positions in the array.

        unknown: [events], True where the time of the request is not given.
        """
        seen, times = self.seen.before(events), self.rows.times
        row = np.searchsorted(self.rows.starts, events, side="right") - 1
        rows, of = np.unique(row, return_inverse=True)
        begin, end = self.rows.starts[rows], np.zeros(len(rows), np.int64)
        np.maximum.at(end, of, events)
        table = concatenated_ranges(begin, end - begin)  # all events of these rows
        offset = np.cumsum(end - begin) - (end - begin)
        newest = self._newest(events, of, begin, seen.counts.numpy())
        ends = events - begin[of]
        moments = None
        if times is not None:
            moments = np.where(unknown, times[np.maximum(events - 1, 0)], times[events])
        return PastCounts(
            torch.from_numpy(self.rows.items[table].astype(np.int64)),
            torch.from_numpy(self.sums[table]),
            torch.from_numpy(table - np.repeat(begin, end - begin)),
            None if times is None else torch.from_numpy(times[table]),
            torch.from_numpy(newest + np.repeat((offset - begin)[of], seen.counts.numpy())),
            seen.counts,
            torch.from_numpy(ends),
            None if moments is None else torch.from_numpy(moments),
            seen,
            seen.known,
        )

    def _newest(
        self, events: IntArray, of: IntArray, begin: IntArray, counts: IntArray
    ) -> IntArray:
        """The newest event of each item before each target: positions in the array, [P]."""
        parts: list[IntArray] = [np.empty(0, np.int64)] * len(events)
        for user, start in enumerate(begin.tolist()):
            mine = np.flatnonzero(of == user)
            table = self._newest_before(start, events[mine], int(counts[mine].max()))
            for target, row in zip(mine.tolist(), table, strict=True):
                parts[target] = row[: counts[target]]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _newest_before(self, start: int, events: IntArray, distinct: int) -> IntArray:
        """[targets of one user, its distinct items]; what has not occurred yet is -1."""
        first, last = int(events.min()), int(events.max())
        table = np.full((last - first + 1, distinct), -1)
        before, then = np.arange(start, first), np.arange(first, last)
        table[0, self.slots[before]] = before  # of equal slots the last one is kept
        table[then - first + 1, self.slots[then]] = then
        newest: IntArray = np.maximum.accumulate(table, axis=0)[events - first]
        return newest


def _slots_and_sums(rows: Sequences, events: IntArray) -> tuple[IntArray, Floats]:
    """events: all of the rows, end to end."""
    row, items = events_of(rows)
    _, first, key = np.unique(
        row * (items.max(initial=0) + 1) + items, return_index=True, return_inverse=True
    )
    appeared = np.argsort(np.argsort(first))  # keys by their first appearance, over all rows
    begin = np.zeros(len(rows), np.int64)
    np.add.at(begin, row[first], 1)
    slots = appeared[key] - (np.cumsum(begin) - begin)[row]
    order = np.argsort(key, kind="stable")  # events of one user and item together, oldest first
    times = None if rows.times is None else np.asarray(rows.times[events])[order]
    sums = np.empty((len(events), half_lives(times is not None)))
    sums[order] = _running_sums(key[order], events[order], times)
    return slots, sums


def _running_sums(chain: IntArray, places: IntArray, times: Floats | None) -> Floats:
    """sum[n] = left[n] * sum[n - 1] + 1 along each chain of equal numbers: [E, K].

    Two steps of such a recurrence are one step of the same form, so they are joined two by two: as
    many rounds as the longest chain has binary digits.
    """
    starts = np.flatnonzero(np.diff(chain, prepend=-1))
    lengths = np.diff(starts, append=len(chain))
    nth = np.arange(len(chain)) - np.repeat(starts, lengths)
    ages = np.diff(places, prepend=0).astype(np.float64)
    ages[starts] = 0.0
    seconds = None if times is None else np.diff(times, prepend=0.0)
    if seconds is not None:
        seconds[starts] = 0.0
    left = remaining(ages, seconds)
    left[starts] = 0.0
    sums, step = np.ones_like(left), 1
    while step <= nth.max(initial=0):
        later = np.flatnonzero(nth >= step)
        sums[later] += left[later] * sums[later - step]
        left[later] *= left[later - step]
        step *= 2
    return sums
