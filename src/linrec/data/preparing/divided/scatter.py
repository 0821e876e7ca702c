"""The events of a chunk, filtered one by one, go to the range that their user is in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.preparing.divided.chunks import event_arrays
from linrec.data.preparing.divided.context import ColumnPlan
from linrec.data.preparing.divided.job import Job
from linrec.data.preparing.divided.numbering import Starts, numbers_of
from linrec.data.preparing.divided.scratch import save
from linrec.data.preparing.filtering import row_filters
from linrec.data.reading.times import scaled
from linrec.types import EventLog

NO_IDS = pl.Series([], dtype=pl.Int64)


@dataclass(frozen=True)
class Plan:
    """What all chunks decided together."""

    source: str
    starts: Starts
    buckets: dict[str, NDArray[np.int64]]  # `Numbered.starts` by role
    ranges: NDArray[np.int64]  # the first user of each range, and the number of users
    unit: str | None  # of the times, see `unit_by`
    columns: list[ColumnPlan] = field(default_factory=list)


class Scattered(NamedTuple):
    passed: list[tuple[int, int]]  # events before and after each filter
    ranges: NDArray[np.int64]  # events of each range


@dataclass(frozen=True)
class Scatter:
    """Sorts what was read of a chunk by ranges of users; in each it stays in the log's order."""

    place: int
    plan: Plan

    def do(self, job: Job) -> Scattered:
        events = self._events(job)
        passed = []
        for each in row_filters(job.options):
            keep = each.passes(events)
            passed.append((len(events), int(keep.sum())))
            events = events.take(keep)
        place = np.searchsorted(self.plan.ranges, events.users, side="right") - 1
        small = np.uint16 if len(self.plan.ranges) < 2**16 else np.int64  # sorted in linear time
        order = np.argsort(place.astype(small), kind="stable")
        save(job.scattered(self.place), records_of(events.take(order)))
        return Scattered(passed, np.bincount(place, minlength=len(self.plan.ranges) - 1))

    def _events(self, job: Job) -> EventLog:
        plan, before = self.plan, int(self.plan.starts.rows[self.place])
        given = event_arrays(job.chunk(self.place), {"time", "rating"} & set(job.columns))
        ids = {
            role: numbers_of(job, role, self.place, starts) for role, starts in plan.buckets.items()
        }
        rows = len(ids["user"])
        times = scaled(given["time"], plan.unit) if "time" in given else before + np.arange(rows)
        return EventLog(
            users=ids["user"],
            items=ids["item"],
            times=np.asarray(times, np.float64),
            user_ids=NO_IDS,
            item_ids=NO_IDS,
            ratings=given.get("rating"),
            groups=ids.get("group"),
            context=tuple(
                column.values(job, self.place, plan.source, before) for column in plan.columns
            ),
        )


def records_of(events: EventLog) -> NDArray[Any]:
    """One record per event, so that a range is one stretch of the file."""
    columns: dict[str, NDArray[Any]] = {
        "user": events.users,
        "item": events.items,
        "time": events.times,
    }
    if events.groups is not None:
        columns["group"] = events.groups
    columns |= {f"context{n}": values for n, values in enumerate(events.context)}
    records = np.empty(len(events), [(name, values.dtype) for name, values in columns.items()])
    for name, values in columns.items():
        records[name] = values
    return records


def events_of(records: NDArray[Any], first_user: int) -> EventLog:
    """The same events; users count from the first one of the range."""
    names = records.dtype.names or ()
    return EventLog(
        users=records["user"] - np.int32(first_user),
        items=np.ascontiguousarray(records["item"]),
        times=np.ascontiguousarray(records["time"]),
        user_ids=NO_IDS,
        item_ids=NO_IDS,
        groups=np.ascontiguousarray(records["group"]) if "group" in names else None,
        context=tuple(
            np.ascontiguousarray(records[name]) for name in names if name.startswith("context")
        ),
    )
