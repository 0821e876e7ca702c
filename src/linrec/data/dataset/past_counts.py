"""How often each user has had each item, and how long ago: counts that decay at several rates.

An event counts 2 ** (-age / half-life). Its age is the number of later events, or the seconds until
the request; an event of unknown time has no counts that decay with time. A request of unknown time
is as old as the newest event.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from linrec.data.dataset.half_lives import half_lives, remaining
from linrec.data.dataset.sequences import IntArray, Sequences, events_of
from linrec.types import PastCounts

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ItemCounts:
    """The past of one user item by item, each as it was right after its newest event.

    This is the streaming form: one more event changes one row, whatever the history.
    """

    items: IntArray  # [D], each once, in order
    places: IntArray  # [D], position of the item's newest event in the history
    times: Floats | None  # [D], of the newest event whose time is known, NaN if there is none
    sums: NDArray[np.float32]  # [D, K]
    events: int  # in the history
    newest: float = np.nan  # the latest known time

    @classmethod
    def none(cls, timed: bool) -> ItemCounts:
        """Of a user without a past."""
        nothing = np.empty(0, np.int64)
        sums = np.empty((0, half_lives(timed)), np.float32)
        return cls(nothing, nothing, np.empty(0) if timed else None, sums, 0)

    def after(self, items: IntArray, times: Floats | None = None) -> ItemCounts:
        """With some more events, oldest first."""
        known, slots = np.unique(np.concatenate([self.items, items]), return_inverse=True)
        old, new = slots[: len(self.items)], slots[len(self.items) :]
        places, sums = np.zeros(len(known), np.int64), np.zeros((len(known), self.sums.shape[1]))
        places[old], sums[old] = self.places, self.sums
        clock = None
        if self.times is not None:
            clock = np.full(len(known), np.nan)
            clock[old] = self.times
            times = np.full(len(items), np.nan) if times is None else times
        for n, slot in enumerate(new.tolist()):
            place, seconds = self.events + n, None
            if clock is not None and times is not None:
                latest = np.fmax(clock[slot], times[n])
                # an unknown time leaves the counts that decay with time as they were
                since = 0.0 if np.isnan(times[n]) else latest - clock[slot]
                seconds, clock[slot] = np.array([since, latest - times[n]]), latest
            old_left, new_left = remaining(np.array([place - places[slot], 0.0]), seconds)
            sums[slot], places[slot] = sums[slot] * old_left + new_left, place
        newest = self.newest if times is None else np.fmax.reduce([self.newest, *times])
        return replace(
            self, items=known, places=places, times=clock, sums=sums.astype(np.float32),
            events=self.events + len(items), newest=float(newest),
        )  # fmt: skip


def counts_of(histories: Sequences, timed: bool) -> PastCounts:
    """Of whole histories, each with one target after it, requested at the row's `until`.

    timed: whether counts decay with time too; histories without times have only unknown ones.
    """
    rows, items = events_of(histories)
    keys, first, key = np.unique(
        rows * (items.max(initial=0) + 1) + items, return_index=True, return_inverse=True
    )
    place = np.arange(len(rows)) - (np.cumsum(histories.lengths) - histories.lengths)[rows]
    last = np.zeros(len(keys), np.int64)
    np.maximum.at(last, key, place)
    times = clock = seconds = None
    if timed:
        known = histories.flat_times()
        times = np.full(len(rows), np.nan) if known is None else known
        clock = np.full(len(keys), -np.inf)
        np.fmax.at(clock, key, times)
        clock = np.where(np.isinf(clock), np.nan, clock)
        seconds = clock[key] - times
    left = remaining((last[key] - place).astype(np.float64), seconds)
    sums = np.stack([np.bincount(key, column, len(keys)) for column in left.T], 1)
    newest = None if times is None else _newest_time(rows, times, len(histories))
    return _one_target_each(
        rows[first], items[first], last, clock, sums.astype(np.float32),
        histories.lengths, _moments(newest, histories),
    )  # fmt: skip


def counts_of_users(users: list[ItemCounts], at: Floats) -> PastCounts:
    """The same from the streaming form, for requests at these times (NaN: unknown)."""
    lengths = np.array([len(user.items) for user in users], np.int64)
    rows = np.repeat(np.arange(len(users)), lengths)
    clocks = [user.times for user in users if user.times is not None]
    newest = np.array([user.newest for user in users])
    return _one_target_each(
        rows,
        np.concatenate([user.items for user in users]),
        np.concatenate([user.places for user in users]),
        np.concatenate(clocks) if clocks else None,
        np.concatenate([user.sums for user in users]),
        np.array([user.events for user in users]),
        np.fmax(at, newest) if clocks else None,
    )


def _one_target_each(
    rows: IntArray,
    items: IntArray,
    places: IntArray,
    times: Floats | None,
    sums: NDArray[np.float32],
    ends: IntArray,
    moments: Floats | None,
) -> PastCounts:
    """rows: [Q], the target of each, in order."""
    return PastCounts(
        torch.from_numpy(items.astype(np.int64)),
        torch.from_numpy(sums),
        torch.from_numpy(places),
        None if times is None else torch.from_numpy(times),
        torch.arange(len(items)),
        torch.from_numpy(np.bincount(rows, minlength=len(ends)).astype(np.int64)),
        torch.from_numpy(ends),
        None if moments is None else torch.from_numpy(moments),
    )


def _newest_time(rows: IntArray, times: Floats, users: int) -> Floats:
    newest = np.full(users, -np.inf)
    np.fmax.at(newest, rows, times)
    return np.where(np.isinf(newest), np.nan, newest)


def _moments(newest: Floats | None, histories: Sequences) -> Floats | None:
    """No request is before the newest event; one of unknown time is when that was."""
    return None if newest is None else np.fmax(newest, histories.until_or_unknown())
