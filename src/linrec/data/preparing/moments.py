"""Times that a caller gives: bounds of a filter, times of events, the time of a request."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

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


def split_pairs(rows: Iterable[Any]) -> tuple[list[list[Any]], list[list[float]] | None]:
    """The items, and the times if the rows hold (item, time) pairs instead of items."""
    lists = [list(row) for row in rows]
    pairs = [isinstance(event, tuple | list) for row in lists for event in row]
    if not any(pairs):
        return lists, None
    if not all(pairs) or any(len(event) != 2 for row in lists for event in row):
        raise InputError(
            "give the events of a history as items or as (item, time) pairs, all alike"
        )
    items = [[item for item, _ in row] for row in lists]
    return items, [[_time_of(time) for _, time in row] for row in lists]


def _time_of(value: Moment | None) -> float:
    return math.nan if value is None else _seconds(value, "time")


def _seconds(value: Moment, name: str) -> float:
    if isinstance(value, int | float) and math.isnan(value):
        return math.nan
    seconds = moment(value, name)
    assert seconds is not None
    return seconds
