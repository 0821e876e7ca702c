"""The events of a range of users: sorted, filtered, counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrec.data.preparing.divided.job import Job
from linrec.data.preparing.divided.scatter import NO_IDS, events_of
from linrec.data.preparing.divided.scratch import load, save
from linrec.data.preparing.filtering import history_filters, in_order
from linrec.types import EventLog


@dataclass(frozen=True)
class Range:
    """Some users, by their numbers."""

    place: int
    first: int
    end: int

    @property
    def users(self) -> int:
        return self.end - self.first


class Sorted(NamedTuple):
    passed: list[tuple[int, int]]  # events before and after each filter
    events: int


@dataclass(frozen=True)
class SortRange:
    """Brings the events of a range together, chunk after chunk, which is the log's order."""

    range: Range
    stretches: NDArray[np.int64]  # [chunks, 2], where each chunk has its events
    drawn: int  # events in the ranges before
    items: int  # that there are

    def do(self, job: Job) -> Sorted:
        parts = [
            load(job.scattered(chunk))[first:end]
            for chunk, (first, end) in enumerate(self.stretches.tolist())
            if end > first or not chunk  # one tells the type if all are empty
        ]
        events = events_of(np.concatenate(parts), self.range.first)
        del parts
        seed = job.options.ties_seed if job.options.ties == "shuffle" else None
        passed = []
        if len(events):
            events = in_order(events, seed, drawn=self.drawn)
        for each in history_filters(job.options):
            keep = each.passes(events)
            passed.append((len(events), int(keep.sum())))
            events = events.take(keep)
        self._save(job, events)
        return Sorted(passed, len(events))

    def _save(self, job: Job, events: EventLog) -> None:
        folder = job.histories(self.range.place)
        for name, array in arrays_of(events).items():
            save(folder / f"{name}.npy", array)
        save(folder / "lengths-0.npy", np.bincount(events.users, minlength=self.range.users))
        save(folder / "counts-0.npy", np.bincount(events.items, minlength=self.items))


def arrays_of(events: EventLog) -> dict[str, NDArray[np.generic]]:
    """What is written per event, under the names that a dataset has."""
    arrays: dict[str, NDArray[np.generic]] = {"items": events.items, "times": events.times}
    if events.groups is not None:
        arrays["groups"] = events.groups
    return arrays | {f"context-{n}": values for n, values in enumerate(events.context)}


def read_range(job: Job, place: int, columns: int) -> EventLog:
    """The sorted events of a range; columns: how many columns of context there are."""
    folder = job.histories(place)
    lengths = load(folder / "lengths-0.npy")
    return EventLog(
        users=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        items=load(folder / "items.npy"),
        times=load(folder / "times.npy"),
        user_ids=NO_IDS,
        item_ids=NO_IDS,
        groups=load(folder / "groups.npy") if "group" in job.columns else None,
        context=tuple(load(folder / f"context-{n}.npy") for n in range(columns)),
    )


@dataclass(frozen=True)
class CountRange:
    """Counts what is left of a range; a round of the k-core."""

    place: int
    round: int  # from 1

    def do(self, job: Job) -> tuple[int, int]:
        """Events before and after users with few of them are left out."""
        folder = job.histories(self.place)
        items, lengths = load(folder / "items.npy"), load(folder / "lengths-0.npy")
        before = load(folder / f"lengths-{self.round - 1}.npy")
        users = np.repeat(np.arange(len(lengths)), lengths)
        alive = load(job.folder / f"items-{self.round}.npy")[items] & (before > 0)[users]
        left = np.bincount(users[alive], minlength=len(lengths))
        enough = left >= max(job.options.min_user_events, 1)
        alive &= enough[users]
        counts = np.bincount(items[alive], minlength=len(load(folder / "counts-0.npy")))
        save(folder / f"lengths-{self.round}.npy", np.where(enough, left, 0))
        save(folder / f"counts-{self.round}.npy", counts)
        return int(left.sum()), int(left[enough].sum())


def kept_of(job: Job, events: EventLog, place: int, round: int) -> EventLog:
    """The events of a range that the rounds have left."""
    if not round:
        return events
    lengths = load(job.histories(place) / f"lengths-{round}.npy")
    alive = load(job.folder / f"items-{round}.npy")[events.items] & (lengths > 0)[events.users]
    return replace(events.take(alive))
