"""Bootstrap intervals: how much a mean over users would vary with other users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1_000
_BINS = 4_096


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and the bounds of its 95 % interval, None where it has no interval."""

    mean: float
    low: float | None = None
    high: float | None = None


def bootstrap(values: NDArray[np.float64], seed: int = 0) -> Interval:
    """The mean of `values` with its percentile bootstrap interval.

    Resampling users is drawing how many have each value, so a resample needs one number per
    distinct value, not per user. Values closer than 1/4096 of their range share a bin (and its
    mean); a metric with a cut-off k has few values, each in a bin of its own.
    """
    counts, centres = _histogram(values)
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(len(values), counts / len(values), size=RESAMPLES)
    low, high = np.quantile(draws @ centres / len(values), [0.025, 0.975])
    mean = float(values.mean())
    # equal values may differ from their own mean in the last bit
    return Interval(mean, min(float(low), mean), max(float(high), mean))


def _histogram(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The number of values in each occupied bin, and their mean."""
    if not len(values):
        raise ValueError("there are no users, so there is no mean")
    least, width = values.min(), float(np.ptp(values)) or 1.0
    bins = ((values - least) * ((_BINS - 1) / width)).astype(np.int64)
    counts = np.bincount(bins)
    occupied = np.flatnonzero(counts)
    counts = counts[occupied]
    return counts, np.bincount(bins, weights=values)[occupied] / counts
