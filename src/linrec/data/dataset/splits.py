"""Splits: what is trained on, and rows of (user, history, request time, targets) to predict.

Each user's events are divided at two positions: training, validation, test. Which positions, and
what is predicted of the held-out events, are two questions; `Regions` answers the first, `Targets`
the second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.sequences import IntArray, Sequences, concatenated_ranges
from linrec.types import InputError

Part = Literal["valid", "test"]

# one event to start from, one to validate and one to test
EVENTS_TO_SPLIT = 3


class Owners(NamedTuple):
    """Whose the targets are, where a user has several of them."""

    rows: IntArray  # [targets], 0, 0, 1, ...: the targets of one row are one set
    users: IntArray  # [rows], 0, 1, 1, ...: each user's rows together

    @property
    def several(self) -> bool:
        """Whether any row has more than one target."""
        return len(self.rows) > len(self.users)

    def user_means(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean over each user's rows: [rows] -> [users]."""
        return np.bincount(self.users, values) / np.bincount(self.users)


@dataclass(frozen=True, slots=True)
class Holdout:
    """What is to be predicted: rows of a user, a history, the time of the request and targets."""

    users: IntArray  # [rows], index into the store's users
    histories: Sequences  # all events before the targets
    targets: IntArray  # [targets], the items that came next, row by row and once in a row
    at: NDArray[np.float64] | None = None  # [rows], when they came; None without real times
    counts: IntArray | None = None  # [rows], targets of each row; None: one each

    def __len__(self) -> int:
        return len(self.users)

    @property
    def target_counts(self) -> IntArray:
        return np.ones(len(self), np.int64) if self.counts is None else self.counts

    @property
    def owners(self) -> Owners | None:
        """None where every user has one target."""
        changes = np.diff(self.users, prepend=-1) != 0
        if self.counts is None and changes.all():
            return None
        rows = np.repeat(np.arange(len(self)), self.target_counts)
        return Owners(rows, np.cumsum(changes) - 1)

    @property
    def n_users(self) -> int:
        return len(np.unique(self.users))

    def targets_of(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Of some rows: the positions of their targets, and of each the place of its row."""
        if self.counts is None:
            return rows, np.arange(len(rows))
        starts = np.cumsum(self.counts) - self.counts
        index = concatenated_ranges(starts[rows], self.counts[rows])
        return index, np.repeat(np.arange(len(rows)), self.counts[rows])

    def rows(self, rows: slice) -> Holdout:
        """Some rows, for one of several workers."""
        index, _ = self.targets_of(np.arange(len(self))[rows])
        return Holdout(
            self.users[rows], self.histories.take(np.arange(len(self))[rows]), self.targets[index],
            None if self.at is None else self.at[rows],
            None if self.counts is None else self.counts[rows],
        )  # fmt: skip

    def at_unknown_times(self) -> Holdout:
        """The same for a model that is not given the time of the request."""
        return replace(self, histories=replace(self.histories, until=None))


@dataclass(frozen=True, slots=True)
class Split:
    train: Sequences  # one row per user; a user too short to hold anything out trains on all events
    valid: Holdout
    test: Holdout
    begins: NDArray[np.bool_] | None = None  # [events], where baskets begin, if these are predicted
    eligible: NDArray[np.bool_] | None = None  # [events], which may be targets; None: all

    def part(self, name: Part) -> Holdout:
        return self.valid if name == "valid" else self.test


def leave_one_out(sequences: Sequences) -> Split:
    """Split each user's own sequence; the test history contains the validation event."""
    split = Targets().split(sequences, last_of_each(sequences, 1))
    if not len(split.test):
        raise InputError(
            f"no user has {EVENTS_TO_SPLIT} events, the minimum to validate and test on one each; "
            "give a longer log or loosen the filters of `linrec prepare`"
        )
    return split


class Regions(NamedTuple):
    """Where the events to validate and to test on begin; of nothing held out: at the row's end."""

    valid: IntArray  # [rows], positions in the array of events
    test: IntArray  # [rows]


def last_of_each(
    sequences: Sequences,
    k: int,
    begins: NDArray[np.bool_] | None = None,
    eligible: NDArray[np.bool_] | None = None,
) -> Regions:
    """The last k events of each row to test on, the k before them to validate on.

    begins: [events], True where a basket begins, to count baskets instead of events. eligible:
    [events], to count only some of the events. A row too short to keep one for training holds
    nothing out.
    """
    ends = sequences.ends
    if eligible is not None:
        marks = np.flatnonzero(eligible)
        stop = np.searchsorted(marks, ends)
        enough = stop - np.searchsorted(marks, sequences.starts) >= 2 * k
        marks = marks if len(marks) else np.zeros(1, np.int64)
        valid, test = (marks[np.maximum(stop - count, 0)] for count in (2 * k, k))
        long_enough = enough & (valid > sequences.starts)
    elif begins is None:
        valid, test = ends - 2 * k, ends - k
        long_enough = sequences.lengths > 2 * k
    else:
        starts = np.flatnonzero(begins)
        stop = np.searchsorted(starts, ends)
        long_enough = stop - np.searchsorted(starts, sequences.starts) > 2 * k
        valid, test = (starts[np.maximum(stop - count, 0)] for count in (2 * k, k))
    return Regions(np.where(long_enough, valid, ends), np.where(long_enough, test, ends))


def from_times(
    sequences: Sequences, times: NDArray[np.float64], valid: float, test: float
) -> Regions:
    """Events from the time `test` on to test on, those from `valid` on before it to validate on.

    times: [events], ascending in each row.
    """
    rows = zip(sequences.starts.tolist(), sequences.ends.tolist(), strict=True)
    places = [start + np.searchsorted(times[start:end], (valid, test)) for start, end in rows]
    found = np.array(places, np.int64).reshape(-1, 2)
    return Regions(found[:, 0], found[:, 1])


@dataclass(frozen=True, slots=True)
class Targets:
    """What is predicted of the events of a region."""

    count: int | None = 1  # the next ones, or None: all of a basket, or each one
    begins: NDArray[np.bool_] | None = None  # [events], where baskets begin: the next basket
    every: bool = False  # each event from its own past, instead of the next ones
    eligible: NDArray[np.bool_] | None = None  # [events], which of them are predicted; None: all

    def split(self, sequences: Sequences, regions: Regions) -> Split:
        train = replace(sequences, ends=np.minimum(regions.valid, sequences.ends), until=None)
        valid = self.hold_out(sequences, regions.valid, regions.test)
        test = self.hold_out(sequences, regions.test, sequences.ends)
        return Split(train, valid, test, self.begins, self.eligible)

    def hold_out(self, sequences: Sequences, first: IntArray, stop: IntArray) -> Holdout:
        """The rows of a region; a user without a past or without an event in it has none."""
        first = np.maximum(first, sequences.starts + 1)
        starts = self.begins if self.eligible is None else self.eligible
        if starts is not None:
            first = _next_start(starts, first)
        users = np.flatnonzero(first < stop).astype(np.int64)
        first, stop = first[users], stop[users]
        if self.every:
            users, first = np.repeat(users, stop - first), concatenated_ranges(first, stop - first)
            if self.eligible is not None:
                users, first = users[self.eligible[first]], first[self.eligible[first]]
        rows = sequences.take(users)
        histories = rows.before(first)
        if self.every or self.count == 1:
            targets = sequences.items[first].astype(np.int64)
            return Holdout(users, histories, targets, histories.until)
        stop = self._stop(first, stop)
        targets, counts = _distinct(sequences.items, first, stop - first, self.eligible)
        return Holdout(users, histories, targets, histories.until, counts)

    def _stop(self, first: IntArray, stop: IntArray) -> IntArray:
        if self.begins is not None:
            return np.minimum(_next_start(self.begins, first + 1), stop)
        assert self.count is not None
        if self.eligible is None:
            return np.minimum(first + self.count, stop)
        marks = np.append(np.flatnonzero(self.eligible), len(self.eligible))
        last = np.minimum(np.searchsorted(marks, first) + self.count, len(marks) - 1)
        return np.asarray(np.minimum(marks[last], stop), np.int64)


def _next_start(begins: NDArray[np.bool_], events: IntArray) -> IntArray:
    """The first beginning of a basket from each position on; the number of events if none is."""
    starts = np.append(np.flatnonzero(begins), len(begins))
    return np.asarray(starts[np.searchsorted(starts, np.minimum(events, len(begins)))], np.int64)


def _distinct(
    items: NDArray[np.int32],
    first: IntArray,
    lengths: IntArray,
    eligible: NDArray[np.bool_] | None = None,
) -> tuple[IntArray, IntArray]:
    """The items of each range once, in the order of their first appearance, and how many."""
    row, events = np.repeat(np.arange(len(first)), lengths), concatenated_ranges(first, lengths)
    if eligible is not None:
        row, events = row[eligible[events]], events[eligible[events]]
    flat = items[events].astype(np.int64)
    _, once = np.unique(row * (flat.max(initial=0) + 1) + flat, return_index=True)
    once.sort()
    return flat[once], np.bincount(row[once], minlength=len(first))
