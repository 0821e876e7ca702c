"""Whether the times of a log number its rows, found out without sorting all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from linrec.data.preparing.divided.job import Job
from linrec.data.preparing.divided.scratch import load
from linrec.data.reading.times import TimesLook, scaled

SPAN = 4_000_000  # times looked at together


class Run(NamedTuple):
    """Some of the times, sorted."""

    first: float
    last: float
    consecutive: bool


@dataclass(frozen=True)
class SortTimes:
    """Sorts the times of some chunks from `first` on and before `end`."""

    chunks: list[int]
    unit: str | None
    first: float
    end: float

    def do(self, job: Job) -> Run | None:
        every = (
            scaled(np.asarray(load(job.chunk(n) / "time.npy")), self.unit) for n in self.chunks
        )
        some = [times[(times >= self.first) & (times < self.end)] for times in every]
        times = np.sort(np.concatenate(some))
        if not len(times):
            return None
        return Run(float(times[0]), float(times[-1]), bool((np.diff(times) == 1).all()))


def number_rows(
    run: Callable[[Sequence[SortTimes]], list[Run | None]],
    looks: Sequence[TimesLook | None],
    unit: str | None,
    rows: int,
) -> bool:
    """run: does the tasks. looks: those of the chunks."""
    bounds = [
        (n, *scaled(np.array([look.first, look.last]), unit).tolist())
        for n, look in enumerate(looks)
        if look is not None
    ]
    first, last = min(low for _, low, _ in bounds), max(high for _, _, high in bounds)
    if last - first != rows - 1:
        return False
    edges = [first + SPAN * n for n in range(int((last - first) // SPAN) + 2)]
    tasks = [
        SortTimes([n for n, a, b in bounds if a < end and b >= low], unit, low, end)
        for low, end in pairwise(edges)
    ]
    runs = [found for found in run(tasks) if found is not None]
    return all(one.consecutive for one in runs) and all(
        after.first - before.last == 1 for before, after in pairwise(runs)
    )
