"""Rare items and short users are left out in turn, by counting what is left of each range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linrec.data.preparing.divided.histories import CountRange, Range
from linrec.data.preparing.divided.job import Job
from linrec.data.preparing.divided.scratch import load, save
from linrec.data.preparing.filtering import Removed, note_removed


@dataclass
class Core:
    """What is left after some rounds."""

    job: Job
    ranges: list[Range]
    counts: NDArray[np.int64]  # [items], events that are left
    round: int = 0

    @classmethod
    def of(cls, job: Job, ranges: list[Range], items: int) -> Core:
        core = cls(job, ranges, np.zeros(items, np.int64))
        core.counts = core._sum()
        return core

    def _sum(self) -> NDArray[np.int64]:
        total = np.zeros(len(self.counts), np.int64)
        for each in self.ranges:
            total += load(self.job.histories(each.place) / f"counts-{self.round}.npy")
        return total

    def lengths(self) -> NDArray[np.int64]:
        """[users], events that are left of each."""
        name = f"lengths-{self.round}.npy"
        return np.concatenate([load(self.job.histories(each.place) / name) for each in self.ranges])

    def repeat(
        self, run: Callable[[Sequence[CountRange]], list[Any]], removed: dict[str, int]
    ) -> None:
        """Until neither drops anything; run: does the tasks of a round."""
        min_item = self.job.options.min_item_events
        min_user = self.job.options.min_user_events
        if min_item == min_user == 1:
            return
        events, before = int(self.counts.sum()), -1
        while events != before:
            before = events
            frequent = self.counts >= max(min_item, 1)
            if min_item > 1:
                left = int(self.counts[frequent].sum())
                note_removed(removed, Removed("min_item_events", min_item, events, left))
            self.round += 1
            save(self.job.folder / f"items-{self.round}.npy", frequent)
            parts = run([CountRange(each.place, self.round) for each in self.ranges])
            whole, events = (sum(part[which] for part in parts) for which in (0, 1))
            if min_user > 1:
                note_removed(removed, Removed("min_user_events", min_user, whole, events))
            self.counts = self._sum()
