"""The events of a user as a model reads them, and when a request takes place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import time
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.sequences import Sequences
from linrec.serving.contexts import Context, context_text
from linrec.serving.stores.store import Event
from linrec.types import InputError, argument

Indices = NDArray[np.int64]

RequestTime = float | Literal["unknown"] | None
"""When recommendations are for: seconds, "unknown", or None for now."""

HistoryEvent = str | tuple[str, float | None] | tuple[str, float | None, Context | None]
"""An item of a given history, with its time and its context if these are known."""

Codes = NDArray[np.int32]

UNKNOWN = math.nan


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Events of items that the model knows, oldest first."""

    items: Indices
    times: NDArray[np.float64]  # seconds, NaN where unknown
    context: Codes | None = None  # [events, fields], if the model reads any

    @classmethod
    def of(
        cls, events: Sequence[tuple[int, float]], context: Sequence[Sequence[int]] | None = None
    ) -> Past:
        """context: the codes of each event."""
        items = np.array([item for item, _ in events], np.int64)
        times = np.array([time for _, time in events], np.float64)
        return cls(items, times, None if context is None else np.array(context, np.int32))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, part: slice) -> Past:
        context = None if self.context is None else self.context[part]
        return Past(self.items[part], self.times[part], context)

    def followed_by(self, other: Past) -> Past:
        if not (len(self) and len(other)):  # no codes have no width
            return other if len(other) else self
        items, times = (self.items, other.items), (self.times, other.times)
        known = [past.context for past in (self, other) if past.context is not None]
        context = np.concatenate(known) if known else None
        return Past(np.concatenate(items), np.concatenate(times), context)

    def without(self, position: int) -> Past:
        """As if that event had never happened."""
        context = None if self.context is None else np.delete(self.context, position, axis=0)
        return Past(np.delete(self.items, position), np.delete(self.times, position), context)


def sequences_of(rows: Sequence[Past], until: Sequence[float] | None = None) -> Sequences:
    """until: when the gap after the newest event of each row ends; unknown if left out."""
    items = [row.items.astype(np.int32) for row in rows]
    made = Sequences.of(items, [row.times for row in rows], until)
    known = [row.context for row in rows if row.context is not None and len(row)]
    if not known:
        return made
    return replace(made, context=np.concatenate(known))


def given_events(history: Sequence[HistoryEvent]) -> list[Event]:
    """The events of a given history; what has no time has an unknown one."""
    return [_given(event) for event in history]


def _given(event: HistoryEvent) -> Event:
    if isinstance(event, str):
        return Event(event, UNKNOWN)
    item, when, *rest = event
    context = context_text(rest[0]) if rest else None
    return Event(item, UNKNOWN if when is None else when, None, context)


def later_events(then: Sequence[HistoryEvent], at: RequestTime) -> list[Event]:
    """Events that are not stored; those without a time happen when the request does."""
    events, when = given_events(then), seconds_of(at)
    return [replace(event, time=when) if math.isnan(event.time) else event for event in events]


def check_request_time(at: RequestTime) -> None:
    if (isinstance(at, str) and at != "unknown") or (isinstance(at, float) and math.isinf(at)):
        raise InputError(
            f"{argument('at')} must be a number of seconds, unknown, or left out for now"
        )


def seconds_of(at: RequestTime) -> float:
    """NaN where it is unknown."""
    if at is None:
        return time()
    return UNKNOWN if isinstance(at, str) else float(at)
