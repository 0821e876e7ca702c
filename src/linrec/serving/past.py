"""The events of a user as a model reads them, and when a request takes place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import time
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.sequences import Sequences
from linrec.types import InputError, argument

Indices = NDArray[np.int64]

RequestTime = float | Literal["unknown"] | None
"""When recommendations are for: seconds, "unknown", or None for now."""

HistoryEvent = str | tuple[str, float | None]
"""An item of a given history, with its time if that is known."""

UNKNOWN = math.nan


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Events of items that the model knows, oldest first."""

    items: Indices
    times: NDArray[np.float64]  # seconds, NaN where unknown

    @classmethod
    def of(cls, events: Iterable[tuple[int, float]]) -> Past:
        pairs = list(events)
        items, times = ([pair[side] for pair in pairs] for side in (0, 1))
        return cls(np.array(items, np.int64), np.array(times, np.float64))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, part: slice) -> Past:
        return Past(self.items[part], self.times[part])

    def without(self, position: int) -> Past:
        """As if that event had never happened."""
        return Past(np.delete(self.items, position), np.delete(self.times, position))


def sequences_of(rows: Sequence[Past], until: Sequence[float] | None = None) -> Sequences:
    """until: when the gap after the newest event of each row ends; unknown if left out."""
    items = [row.items.astype(np.int32) for row in rows]
    return Sequences.of(items, [row.times for row in rows], until)


def with_times(history: Sequence[HistoryEvent]) -> list[tuple[str, float]]:
    """Items and times of a given history; what has no time has an unknown one."""
    pairs = [(event, None) if isinstance(event, str) else event for event in history]
    return [(item, UNKNOWN if when is None else when) for item, when in pairs]


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
