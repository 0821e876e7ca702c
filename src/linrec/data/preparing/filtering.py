"""Which events stay. The order of the filters is told in `PrepareOptions`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import coo_array

from linrec.data.preparing.options import PrepareOptions, moment
from linrec.types import InputError

Mask = NDArray[np.bool_]
EVENTS_AT_A_TIME = 1 << 21


@dataclass(frozen=True, slots=True)
class CodedEvents:
    """Events with small numbers for ids, so that counting is an array operation."""

    users: NDArray[np.int32]  # [events], numbered in the order of first appearance
    items: NDArray[np.int32]  # [events], likewise
    times: NDArray[np.float64]  # [events]
    ratings: NDArray[np.float64] | None = None  # [events], NaN where missing

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: Mask | NDArray[np.int32] | NDArray[np.int64] | slice) -> CodedEvents:
        ratings = None if self.ratings is None else self.ratings[rows]
        return replace(
            self,
            users=self.users[rows],
            items=self.items[rows],
            times=self.times[rows],
            ratings=ratings,
        )


def filter_events(
    events: CodedEvents, options: PrepareOptions
) -> tuple[CodedEvents, dict[str, int]]:
    """Events that pass, each user's oldest first, and how many each filter removed."""
    removed: dict[str, int] = {}
    since, until = moment(options.since, "since"), moment(options.until, "until")
    if since is not None:
        events = _keep(events, events.times >= since, "since", options.since, removed)
    if until is not None:
        events = _keep(events, events.times < until, "until", options.until, removed)
    if options.rating_at_least is not None:
        assert events.ratings is not None, "ratings are read whenever a filter asks for them"
        good = events.ratings >= options.rating_at_least
        events = _keep(events, good, "rating_at_least", options.rating_at_least, removed)
    events = in_order(events)
    if options.drop_duplicates:
        events = _keep(events, first_of_each(events), "drop_duplicates", True, removed)
    if options.drop_repeats:
        events = _keep(events, _not_repeated(events), "drop_repeats", True, removed)
    return _core(events, options, removed), removed


def in_order(events: CodedEvents) -> CodedEvents:
    """User by user, oldest first; equal times keep the file's order, for both sorts are stable."""
    events = events.take(_by_user(events.users))
    for users in _some_users(events):
        part = events.take(users)
        if ((np.diff(part.times) >= 0) | (np.diff(part.users) > 0)).all():
            continue  # as most logs are written
        oldest_first = part.take(np.lexsort((part.times, part.users)).astype(np.int64))
        events.items[users], events.times[users] = oldest_first.items, oldest_first.times
        if events.ratings is not None and oldest_first.ratings is not None:
            events.ratings[users] = oldest_first.ratings
    return events


def first_of_each(events: CodedEvents) -> Mask:
    """True on events whose user, item and time no earlier event has; the events are in order."""
    first = np.ones(len(events), dtype=bool)
    for users in _some_users(events):
        part = events.take(users)
        as_before = (np.diff(part.times) == 0) & (np.diff(part.users) == 0)
        tied = np.flatnonzero(np.append(as_before, False) | np.append(False, as_before))
        some = part.take(tied)
        table = pl.DataFrame({"user": some.users, "item": some.items, "time": some.times})
        first[users][tied] = table.select(pl.struct(pl.all()).is_first_distinct()).to_series()
    return first


def _by_user(users: NDArray[np.int32]) -> NDArray[np.int32] | NDArray[np.int64]:
    """The rows of user 0, then those of user 1, ... each in the order they were in.

    Sparse matrices count their way through this, in linear time and without a key to sort by.
    """
    rows = np.arange(len(users), dtype=np.int32 if len(users) < 2**31 else np.int64)
    shape = (int(users.max(initial=0)) + 1, len(users))
    table = coo_array((np.ones(len(users), np.bool_), (users, rows)), shape=shape)
    order: NDArray[np.int32] | NDArray[np.int64] = table.tocsr().indices
    return order


def _some_users(events: CodedEvents) -> Iterator[slice]:
    """Stretches of whole users, of events in the order of users; one bounds what a sort holds."""
    start, users = 0, events.users
    while start < len(users):
        last = users[min(start + EVENTS_AT_A_TIME, len(users)) - 1]
        stop = int(np.searchsorted(users, last, side="right"))
        yield slice(start, stop)
        start = stop


def _keep(
    events: CodedEvents, keep: Mask, name: str, value: object, removed: dict[str, int]
) -> CodedEvents:
    """Take the kept events; a filter that leaves nothing is the one to be told about."""
    if not keep.any():
        raise InputError(
            f"the filter {name}={value} removes all {len(events):,} events that were left; "
            f"loosen --{name.replace('_', '-')}"
        )
    removed[name] = removed.get(name, 0) + int(len(events) - keep.sum())
    return events.take(keep)


def _not_repeated(events: CodedEvents) -> Mask:
    new = np.ones(len(events), dtype=bool)
    new[1:] = (np.diff(events.users) != 0) | (np.diff(events.items) != 0)
    return new


def _core(events: CodedEvents, options: PrepareOptions, removed: dict[str, int]) -> CodedEvents:
    """Drop rare items and short users in turn until neither drops anything.

    One of the two alone is stable after its first pass.
    """
    least_item, least_user = options.min_item_events, options.min_user_events
    while True:
        before = len(events)
        if least_item > 1:
            often = np.bincount(events.items)[events.items] >= least_item
            events = _keep(events, often, "min_item_events", least_item, removed)
        if least_user > 1:
            often = np.bincount(events.users)[events.users] >= least_user
            events = _keep(events, often, "min_user_events", least_user, removed)
        if len(events) == before:
            return events
