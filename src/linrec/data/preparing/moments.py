"""Times that a caller gives: bounds of a filter, times of events, the time of a request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from linrec.types import InputError, argument

if TYPE_CHECKING:
    from linrec.data.dataset.histories import Histories

Moment: TypeAlias = int | float | str | date | datetime
UNKNOWN = "unknown"


def moment(value: Moment | None, name: str, unit: str | None = None) -> float | None:
    """A bound in time, on the scale that the events' own times are read to.

    unit: of numbers; left out, it is recognised as that of a log is.
    """
    if value is None:
        return None
    import polars as pl

    from linrec.data.reading.times import are_numbers, in_seconds, times
    from linrec.data.reading.values import Column

    try:
        column = Column(pl.Series(name, [value]), "time", name)
        if unit is not None and are_numbers(column.values):
            return float(times(column, unit)[0])
        return float(in_seconds(times(column).to_numpy(), name)[0][0])
    except (InputError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{argument(name, repr(value))} is not a time; use a number or an ISO date such as "
            "2024-05-31"
        ) from error


def requested_at(histories: Histories, at: Moment | None) -> Histories:
    """The histories as they stand at the time of a request; left out: of the newest event."""
    import numpy as np

    time = histories.newest if at is None else _request_time(at)
    until = np.full(len(histories), time)
    return replace(histories, sequences=replace(histories.sequences, until=until))


def _request_time(at: Moment) -> float:
    return math.nan if at == UNKNOWN else _seconds(at, "at")


_FORMS = (
    "give the events of a history as items, as (item, time) pairs or as (item, time, context) "
    "triples, all alike"
)


class GivenEvents(NamedTuple):
    """Histories that somebody gave, in columns."""

    items: list[list[Any]]
    times: list[list[float]] | None = None
    context: list[list[Mapping[str, object] | None]] | None = None


def split_events(rows: Iterable[Any]) -> GivenEvents:
    """Rows of items, of (item, time) pairs, or of (item, time, context) triples."""
    lists = [list(row) for row in rows]
    if any(isinstance(event, Mapping) for row in lists for event in row):
        raise InputError(_FORMS)  # as requests over HTTP have them
    parts = {len(e) if isinstance(e, tuple | list) else 0 for row in lists for e in row}
    if parts <= {0}:
        return GivenEvents(lists)
    if parts not in ({2}, {3}):
        raise InputError(_FORMS)
    items = [[event[0] for event in row] for row in lists]
    times = [[_time_of(event[1]) for event in row] for row in lists]
    if parts == {2}:
        return GivenEvents(items, times)
    return GivenEvents(items, times, [[_context_of(event[2]) for event in row] for row in lists])


def _context_of(given: object) -> Mapping[str, object] | None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        for name, value in given.items():
            if isinstance(value, Iterable) and not isinstance(value, str):
                raise InputError(
                    f"the context {name!r} of an event is one text or number, not {value!r}"
                )
        return given
    raise InputError(f"the context of an event is a dict such as {{'type': 'view'}}, not {given!r}")


def _time_of(value: Moment | None) -> float:
    return math.nan if value is None else _seconds(value, "time")


def _seconds(value: Moment, name: str) -> float:
    if isinstance(value, int | float) and math.isnan(value):
        return math.nan
    seconds = moment(value, name)
    assert seconds is not None
    return seconds
