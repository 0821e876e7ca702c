"""The arrays of a dataset, made in full length at first and filled by ranges of users."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.store_files import shard_bounds, shard_name
from linrec.data.dataset.summary import Steps, step_of
from linrec.data.preparing.divided.histories import Range, arrays_of, kept_of, read_range
from linrec.data.preparing.divided.job import Job
from linrec.data.preparing.divided.scratch import load
from linrec.data.preparing.facts import Facts
from linrec.files.atomic import writing


class Shard(NamedTuple):
    """A folder of the dataset, and the users and events in it."""

    folder: Path
    users: slice
    first: int
    end: int


@dataclass(frozen=True)
class Layout:
    """Where the events of a dataset are in its files."""

    shards: list[Shard]

    @classmethod
    def of(cls, draft: Path, offsets: NDArray[np.int64], shard_events: int | None) -> Layout:
        if shard_events is None:
            return cls([Shard(draft, slice(0, len(offsets) - 1), 0, int(offsets[-1]))])
        return cls(
            [
                Shard(draft / shard_name(n), slice(a, b), int(offsets[a]), int(offsets[b]))
                for n, (a, b) in enumerate(shard_bounds(offsets, shard_events))
            ]
        )

    def create(self, kinds: dict[str, np.dtype[Any]]) -> None:
        """Files of the right length, without content."""
        for shard in self.shards:
            shard.folder.mkdir(exist_ok=True)
            for name, kind in kinds.items():
                _create(shard.folder / f"{name}.npy", kind, shard.end - shard.first)

    def fill(self, name: str, values: NDArray[Any], first: int) -> None:
        """Write the values of some events, the first of which is the event `first` of all."""
        for shard, own, at in self._parts(first, first + len(values)):
            path = shard.folder / f"{name}.npy"
            header = path.stat().st_size - (shard.end - shard.first) * values.dtype.itemsize
            with writing(path), path.open("r+b") as file:
                file.seek(header + at * values.dtype.itemsize)
                file.write(np.ascontiguousarray(values[own.start - first : own.stop - first]).data)

    def _parts(self, first: int, end: int) -> Iterator[tuple[Shard, slice, int]]:
        for shard in self.shards:
            own = slice(max(first, shard.first), min(end, shard.end))
            if own.start < own.stop:
                yield shard, own, own.start - shard.first


def _create(path: Path, kind: np.dtype[Any], length: int) -> None:
    header = np.lib.format.header_data_from_array_1_0(np.empty(0, kind)) | {"shape": (length,)}
    with writing(path), path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + length * kind.itemsize)


@dataclass(frozen=True)
class WriteRange:
    """Writes the events of a range to their place in the dataset, and says what they are."""

    range: Range
    round: int
    columns: int  # of context
    first: int  # of its events in the dataset
    layout: Layout
    orders: int  # of the item ids

    def do(self, job: Job) -> tuple[Facts, Steps | None] | None:
        """None: no event is left."""
        place = self.range.place
        kept = kept_of(job, read_range(job, place, self.columns), place, self.round)
        if not len(kept):
            return None
        index = load(job.folder / "index.npy")
        for name, values in arrays_of(kept).items():
            self.layout.fill(name, index[values] if name == "items" else values, self.first)
        lengths = np.bincount(kept.users, minlength=self.range.users)
        offsets = np.concatenate([[0], np.cumsum(lengths[lengths > 0])]).astype(np.int64)
        orders = [load(job.folder / f"order-{n}.npy") for n in range(self.orders)]
        return Facts.of(kept, offsets, orders), step_of(kept.times, offsets)
