"""How often each user has had each item, and how long ago: counts that decay at several rates.

An event counts 2 ** (-age / half-life). Its age is the number of later events, or the seconds until
the request; an event of unknown time has no counts that decay with time. No request is before the
newest event, and one of unknown time is when that was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from linrec.data.dataset.half_lives import half_lives, remaining
from linrec.data.dataset.sequences import IntArray, Sequences, events_of
from linrec.types import PastCounts

Floats = NDArray[np.float64]


class _Rows(NamedTuple):
    """Events, or what some events of one item come to: where the newest was, and counts there."""

    places: IntArray  # [R], positions in the history
    times: Floats | None  # [R], the latest known one, NaN if there is none
    sums: NDArray[np.floating]  # [R, K]


@dataclass(frozen=True, slots=True, eq=False)
class ItemCounts:
    """The past of one user item by item, each as it was right after its newest event.

    This is the streaming form: one more event changes one row, whatever the history.
    """

    items: IntArray  # [D], each once, in order
    places: IntArray  # [D], position of the item's newest event in the history
    times: Floats | None  # [D], latest known time of the item, NaN if there is none
    sums: NDArray[np.float32]  # [D, K]
    events: int = 0  # in the history
    newest: float = np.nan  # the latest known time of all

    @classmethod
    def none(cls, timed: bool) -> ItemCounts:
        """Of a user without a past. timed: whether counts decay with time too."""
        nothing = np.empty(0, np.int64)
        sums = np.empty((0, half_lives(timed)), np.float32)
        return cls(nothing, nothing, np.empty(0) if timed else None, sums)

    def after(self, items: IntArray, times: Floats) -> ItemCounts:
        """With some more events, oldest first."""
        timed = self.times is not None
        known, slots = np.unique(np.concatenate([self.items, items]), return_inverse=True)
        places = self.events + np.arange(len(items))
        clock = None if self.times is None else np.concatenate([self.times, times])
        sums = np.concatenate([self.sums, np.ones((len(items), half_lives(timed)))])
        rows = _Rows(np.concatenate([self.places, places]), clock, sums)
        joined = _joined(slots, len(known), rows)
        newest = np.fmax.reduce(times, initial=self.newest) if timed else np.nan
        return ItemCounts(
            known, joined.places, joined.times, joined.sums.astype(np.float32),
            self.events + len(items), float(newest),
        )  # fmt: skip


def counts_of(histories: Sequences, timed: bool) -> PastCounts:
    """Of whole histories, each with one target after it, requested at the row's `until`.

    timed: whether counts decay with time too; histories without times have only unknown ones.
    """
    rows, items = events_of(histories)
    _, first, key = np.unique(
        rows * (items.max(initial=0) + 1) + items, return_index=True, return_inverse=True
    )
    places = np.arange(len(rows)) - (np.cumsum(histories.lengths) - histories.lengths)[rows]
    times = moments = None
    if timed:
        known = histories.flat_times()
        times = np.full(len(rows), np.nan) if known is None else known
        newest = _latest(rows, len(histories), times)
        moments = np.fmax(newest, histories.until_or_unknown())
    events = _Rows(places, times, np.ones((len(rows), half_lives(timed))))
    joined = _joined(key, len(first), events)
    return _one_target_each(rows[first], items[first], joined, histories.lengths, moments)


def counts_of_users(users: Sequence[ItemCounts], at: Sequence[float]) -> PastCounts:
    """The same from the streaming form, for requests at these times (NaN: unknown)."""
    rows = np.repeat(np.arange(len(users)), [len(user.items) for user in users])
    clocks = [user.times for user in users if user.times is not None]
    moments = np.fmax(np.array(at, np.float64), [user.newest for user in users])
    return _one_target_each(
        rows,
        np.concatenate([user.items for user in users]),
        _Rows(
            np.concatenate([user.places for user in users]),
            np.concatenate(clocks) if clocks else None,
            np.concatenate([user.sums for user in users]),
        ),
        np.array([user.events for user in users]),
        moments if clocks else None,
    )


def _joined(key: IntArray, keys: int, rows: _Rows) -> _Rows:
    """Rows of one key as one row, at the newest of them: what is older has decayed until then."""
    places = np.zeros(keys, np.int64)
    np.maximum.at(places, key, rows.places)
    times = None if rows.times is None else _latest(key, keys, rows.times)
    seconds = None if times is None or rows.times is None else times[key] - rows.times
    left = rows.sums * remaining((places[key] - rows.places).astype(np.float64), seconds)
    sums = [np.bincount(key, column, keys) for column in left.T]
    return _Rows(places, times, np.stack(sums, 1).astype(np.float64))


def _latest(key: IntArray, keys: int, times: Floats) -> Floats:
    """The latest known time of each key, NaN if there is none."""
    latest = np.full(keys, -np.inf)
    np.fmax.at(latest, key, times)
    return np.where(np.isinf(latest), np.nan, latest)


def _one_target_each(
    targets: IntArray, items: IntArray, rows: _Rows, ends: IntArray, moments: Floats | None
) -> PastCounts:
    """targets: [R], of each row, in order. ends, moments: [T]."""
    return PastCounts(
        torch.from_numpy(items.astype(np.int64)),
        torch.from_numpy(rows.sums.astype(np.float32)),
        torch.from_numpy(rows.places),
        None if rows.times is None else torch.from_numpy(rows.times),
        torch.arange(len(items)),
        torch.from_numpy(np.bincount(targets, minlength=len(ends)).astype(np.int64)),
        torch.from_numpy(ends.astype(np.int64)),
        None if moments is None else torch.from_numpy(moments),
    )
