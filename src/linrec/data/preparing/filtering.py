"""Which events stay; `PrepareOptions` gives the order of the filters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import coo_array

from linrec.data.preparing.options import PrepareOptions
from linrec.types import EventLog, InputError, argument

Mask = NDArray[np.bool_]
CHUNK_EVENTS = 1 << 21


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter that was asked for."""

    name: str
    value: object  # of the option
    passes: Callable[[EventLog], Mask]


def filter_events(events: EventLog, options: PrepareOptions) -> tuple[EventLog, dict[str, int]]:
    """Events that pass, each user's oldest first, and how many each filter removed."""
    removed: dict[str, int] = {}
    for each in row_filters(options):
        events = _keep(events, each.passes(events), each.name, each.value, removed)
    events = in_order(events, options.ties_seed if options.ties == "shuffle" else None)
    for each in history_filters(options):
        events = _keep(events, each.passes(events), each.name, each.value, removed)
    return _core(events, options, removed), removed


def row_filters(options: PrepareOptions) -> list[Filter]:
    """The first ones, which look at one event."""
    since, until = options.bounds
    least = options.rating_at_least

    def good(events: EventLog) -> Mask:
        assert events.ratings is not None, "ratings are read whenever a filter needs them"
        assert least is not None
        return np.asarray(events.ratings >= least)

    found = []
    if since is not None:
        found.append(Filter("since", options.since, lambda events: events.times >= since))
    if until is not None:
        found.append(Filter("until", options.until, lambda events: events.times < until))
    if least is not None:
        found.append(Filter("rating_at_least", least, good))
    return found


def history_filters(options: PrepareOptions) -> list[Filter]:
    """Those which look at the events of one user, in order."""
    found = []
    if options.drop_duplicates:
        found.append(Filter("drop_duplicates", True, first_of_each))
    if options.drop_repeats:
        found.append(Filter("drop_repeats", True, _not_repeated))
    return found


def in_order(events: EventLog, ties_seed: int | None = None, *, drawn: int = 0) -> EventLog:
    """User by user, oldest first; equal times keep the file's order, or with a seed get another.

    Where there are groups, events of one time are brought together group by group. drawn: events of
    users before these, where these are some of a log.
    """
    events = events.take(_by_user(events.users))
    rng = None if ties_seed is None else _generator(ties_seed, drawn)
    for chunk in _user_chunks(events):
        part = events.take(chunk)
        keys: list[NDArray[Any]] = [] if part.groups is None else [part.groups]
        if rng is not None:  # one number per event, so that chunks do not matter
            keys.insert(0, rng.random(len(part)))
        elif _sorted(part):
            continue  # as most logs are
        order = np.lexsort((*keys, part.times, part.users)).astype(np.int64)
        _replace(events, chunk, part.take(order))
    return events


def _generator(seed: int, drawn: int) -> np.random.Generator:
    """After so many numbers were drawn."""
    bits = np.random.default_rng(seed).bit_generator
    assert isinstance(bits, np.random.PCG64)
    return np.random.Generator(bits.advance(drawn))


def _sorted(events: EventLog) -> bool:
    later = np.diff(events.times) >= 0
    if events.groups is not None:
        later &= (np.diff(events.times) > 0) | (np.diff(events.groups) >= 0)
    return bool((later | (np.diff(events.users) > 0)).all())


def _replace(events: EventLog, chunk: slice, part: EventLog) -> None:
    events.items[chunk], events.times[chunk] = part.items, part.times
    if events.ratings is not None and part.ratings is not None:
        events.ratings[chunk] = part.ratings
    if events.groups is not None and part.groups is not None:
        events.groups[chunk] = part.groups
    for column, values in zip(events.context, part.context, strict=True):
        column[chunk] = values


def first_of_each(events: EventLog) -> Mask:
    """True on the first event of each user, item and time; the events must be in order."""
    first = np.ones(len(events), dtype=bool)
    for chunk in _user_chunks(events):
        part = events.take(chunk)
        as_before = (np.diff(part.times) == 0) & (np.diff(part.users) == 0)
        tied = np.flatnonzero(np.append(as_before, False) | np.append(False, as_before))
        ties = part.take(tied)
        table = pl.DataFrame({"user": ties.users, "item": ties.items, "time": ties.times})
        first[chunk][tied] = table.select(pl.struct(pl.all()).is_first_distinct()).to_series()
    return first


def _by_user(users: NDArray[np.int32]) -> NDArray[np.int32] | NDArray[np.int64]:
    """The rows of user 0, then those of user 1, ..., each in the order of the file.

    The conversion of a sparse matrix is a counting sort, in linear time.
    """
    rows = np.arange(len(users), dtype=np.int32 if len(users) < 2**31 else np.int64)
    shape = (int(users.max(initial=0)) + 1, len(users))
    table = coo_array((np.ones(len(users), np.bool_), (users, rows)), shape=shape)
    order: NDArray[np.int32] | NDArray[np.int64] = table.tocsr().indices
    return order


def _user_chunks(events: EventLog) -> Iterator[slice]:
    """Chunks of whole users, for events in the order of users, to bound the memory of a sort."""
    start, users = 0, events.users
    while start < len(users):
        last = users[min(start + CHUNK_EVENTS, len(users)) - 1]
        stop = int(np.searchsorted(users, last, side="right"))
        yield slice(start, stop)
        start = stop


def _keep(
    events: EventLog, keep: Mask, name: str, value: object, removed: dict[str, int]
) -> EventLog:
    """Take the kept events."""
    note_removed(removed, Removed(name, value, len(events), int(keep.sum())))
    return events.take(keep)


class Removed(NamedTuple):
    """What one filter did."""

    name: str
    value: object
    before: int
    after: int


def note_removed(removed: dict[str, int], what: Removed) -> None:
    """Count it; the error names the filter that leaves none."""
    if not what.after:
        raise InputError(
            f"the filter {argument(what.name, what.value)} removes all {what.before:,} events that "
            "were left; loosen it"
        )
    removed[what.name] = removed.get(what.name, 0) + what.before - what.after


def _not_repeated(events: EventLog) -> Mask:
    new = np.ones(len(events), dtype=bool)
    new[1:] = (np.diff(events.users) != 0) | (np.diff(events.items) != 0)
    return new


def _core(events: EventLog, options: PrepareOptions, removed: dict[str, int]) -> EventLog:
    """Drop rare items and short users in turn until neither drops anything."""
    min_item, min_user = options.min_item_events, options.min_user_events
    while True:
        before = len(events)
        if min_item > 1:
            frequent = np.bincount(events.items)[events.items] >= min_item
            events = _keep(events, frequent, "min_item_events", min_item, removed)
        if min_user > 1:
            active = np.bincount(events.users)[events.users] >= min_user
            events = _keep(events, active, "min_user_events", min_user, removed)
        if len(events) == before:
            return events
