"""The rates at which the counts of past items decay: after a half-life an event counts half.

They are fixed, so that a count is a property of the data; what the counts are worth is learned. A
run with a repeat head stores one weight for each of them: to change this list is to change the
format of such runs.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

HOUR, DAY = 3600.0, 86_400.0

IN_EVENTS = (1.0, 4.0, 16.0, 64.0, 256.0, math.inf)
IN_SECONDS = (HOUR, DAY, 7 * DAY, 30 * DAY, 365 * DAY)


def half_lives(timed: bool) -> int:
    """How many counts each item has."""
    return len(IN_EVENTS) + (len(IN_SECONDS) if timed else 0)


def remaining(
    events: NDArray[np.float64], seconds: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """What is left of a count after so many events and seconds: [E], [E] -> [E, K].

    An unknown number of seconds (NaN) leaves nothing of the counts that decay with time.
    """
    left: NDArray[np.float64] = np.exp2(-events[:, None] / np.array(IN_EVENTS))
    if seconds is None:
        return left
    in_time = np.exp2(-np.maximum(seconds, 0.0)[:, None] / np.array(IN_SECONDS))
    return np.concatenate([left, np.nan_to_num(in_time, nan=0.0)], 1)
