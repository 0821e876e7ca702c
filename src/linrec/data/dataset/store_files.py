"""The files of a dataset, in one folder or in shards, each of which has a range of the users."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from linrec.data.dataset.chunked import joined
from linrec.data.dataset.context_files import ContextEntry, file_names
from linrec.data.dataset.feature import FeatureKind
from linrec.data.dataset.ids import check_ids
from linrec.data.dataset.summary import Summary
from linrec.files.atomic import DATASET_MARKER
from linrec.files.expansion import check_parquet
from linrec.files.guard import reading
from linrec.types import InputError
from linrec.validation import explain

FORMAT_VERSION = 3
SHARDED_VERSION = 4  # the same in shards, which earlier versions do not know
OLDER_VERSIONS = (1, 2)  # 1: its fingerprint leaves out the times; 2: it has no context
EVENT_FILES = ("items.npy", "offsets.npy", "times.npy", "users.parquet")
GROUPS = "groups.npy"  # only where a group column was read
VECTORS = "item_vectors.npy"  # only where item vectors were given
AGAIN = "make it again with `linrec prepare`"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FeatureEntry(_Strict):
    name: str
    kind: FeatureKind


class ShardEntry(_Strict):
    """Some users of a dataset and all of their events; shards follow each other in this order."""

    users: int
    events: int


class DatasetFile(_Strict):
    format_version: int
    fingerprint: str
    features: list[FeatureEntry]
    context: list[ContextEntry] = []
    shards: list[ShardEntry] = []  # empty: the arrays are beside this file
    summary: Summary

    def text(self) -> str:
        """Without shards as earlier versions read it."""
        return self.model_dump_json(indent=2, exclude=None if self.shards else {"shards"})


@dataclass(frozen=True, slots=True)
class EventFiles:
    """The arrays with one value per event or user, in one folder or in several."""

    path: Path
    shards: Sequence[ShardEntry]

    @property
    def names(self) -> list[str]:
        """Of the folders, relative to the dataset."""
        return [shard_name(place) for place in range(len(self.shards))] or ["."]

    def lacking(self, described: DatasetFile) -> str | None:
        """The first file that ought to be there and is not."""
        return next(
            (name for name in self.needed(described) if not (self.path / name).is_file()), None
        )

    def needed(self, described: DatasetFile) -> list[str]:
        """The files without which it is not a dataset."""
        context = file_names(described.context)
        per_event = [*EVENT_FILES, *(name for name in context if name.endswith(".npy"))]
        whole = ["items.parquet", *(name for name in context if not name.endswith(".npy"))]
        return [*whole, *(str(Path(folder) / name) for folder in self.names for name in per_event)]

    @property
    def possible(self) -> list[str]:
        """The files that only some datasets have."""
        return [VECTORS, *(str(Path(folder) / GROUPS) for folder in self.names)]

    def load(self, file: Path, kind: type[np.generic]) -> NDArray[Any]:
        """The array of this name, mapped into memory."""
        return joined([map_array(self.path / name / file.name, kind) for name in self.names])

    def groups(self) -> NDArray[np.int32] | None:
        there = [(self.path / name / GROUPS).is_file() for name in self.names]
        if not any(there):
            return None
        return self.load(self.path / GROUPS, np.int32)

    def offsets(self) -> NDArray[np.int64]:
        """Those of the whole dataset; of several shards in memory, because each counts from 0."""
        parts = [map_array(self.path / name / "offsets.npy", np.int64) for name in self.names]
        if not self.shards:
            return parts[0]
        for name, part, entry in zip(self.names, parts, self.shards, strict=True):
            if len(part) != entry.users + 1 or part[0] != 0 or part[-1] != entry.events:
                raise ValueError(f"{name} is not the shard that was written")
        before = np.cumsum([0, *(entry.events for entry in self.shards)])
        shifted = [part[1:] + start for part, start in zip(parts, before, strict=False)]
        return np.concatenate([np.zeros(1, np.int64), *shifted])

    def users(self) -> pl.Series:
        tables = [read_table(self.path / name / "users.parquet", "user") for name in self.names]
        users = pl.concat([table["user"] for table in tables], rechunk=True)
        if self.shards:
            check_ids(users, f"the dataset {self.path}", AGAIN)
        return users


def shard_name(place: int) -> str:
    return f"shard-{place:05d}"


def shard_bounds(offsets: NDArray[np.int64], events: int) -> list[tuple[int, int]]:
    """Ranges of users with at most so many events together, or of one user with more."""
    bounds, first, users = [], 0, len(offsets) - 1
    while first < users:
        end = int(np.searchsorted(offsets, offsets[first] + events, side="right")) - 1
        bounds.append((first, max(end, first + 1)))
        first = bounds[-1][1]
    return bounds


def write_shard(
    folder: Path,
    arrays: dict[str, NDArray[Any]],
    offsets: NDArray[np.int64],
    users: pl.Series,
) -> ShardEntry:
    """Some users: arrays of all their events by name, their own offsets from 0, and their ids."""
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    return write_users(folder, offsets, users)


def write_users(folder: Path, offsets: NDArray[np.int64], users: pl.Series) -> ShardEntry:
    """offsets: their own, from 0."""
    np.save(folder / "offsets.npy", offsets, allow_pickle=False)
    pl.DataFrame({"user": users}).write_parquet(folder / "users.parquet")
    return ShardEntry(users=len(users), events=int(offsets[-1]))


def write_shards(
    draft: Path,
    arrays: dict[str, NDArray[Any]],
    offsets: NDArray[np.int64],
    users: pl.Series,
    shard_events: int | None,
) -> list[ShardEntry]:
    """In one folder without an entry, or in shards of at most so many events."""
    if shard_events is None:
        write_shard(draft, arrays, np.asarray(offsets), users)
        return []
    entries = []
    for place, (first, end) in enumerate(shard_bounds(offsets, shard_events)):
        own = np.asarray(offsets[first : end + 1])
        part = {name: array[own[0] : own[-1]] for name, array in arrays.items()}
        chosen = users.slice(first, end - first)
        entries.append(write_shard(draft / shard_name(place), part, own - own[0], chosen))
    return entries


def read_description(path: Path) -> DatasetFile:
    if not path.exists():
        raise InputError(f"there is no dataset at {path}; make one with `linrec prepare`")
    if not (path / DATASET_MARKER).is_file():
        raise InputError(
            f"{path} is not a linrec dataset (it has no {DATASET_MARKER}); "
            "make one with `linrec prepare`"
        )
    with reading(f"{path / DATASET_MARKER}", AGAIN):
        text = (path / DATASET_MARKER).read_bytes()
    return description_of(text, path)


def description_of(text: bytes, path: Path) -> DatasetFile:
    """What a manifest says; path: of its dataset, for messages."""
    with reading(f"{path / DATASET_MARKER}", AGAIN):
        content = json.loads(text.decode("utf-8"))
    # checked first, because another version explains every other difference
    version = content.get("format_version") if isinstance(content, dict) else None
    known = (FORMAT_VERSION, SHARDED_VERSION, *OLDER_VERSIONS)
    if isinstance(version, int) and version not in known:
        raise InputError(
            f"{path} has format version {version} and this linrec reads version "
            f"{FORMAT_VERSION}; {AGAIN}"
        )
    try:
        return DatasetFile.model_validate(content)
    except ValidationError as error:
        raise InputError(
            f"{path / DATASET_MARKER} is damaged ({explain(error)}); {AGAIN}"
        ) from error


def map_array(path: Path, kind: type[np.generic], axes: int = 1) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header may raise anything
        raise ValueError(f"{path.name} is not a whole array") from error
    if array.dtype != kind or array.ndim != axes:
        raise ValueError(f"{path.name} holds {array.dtype} of shape {array.shape}")
    return array


def read_table(path: Path, id_column: str) -> pl.DataFrame:
    content = path.read_bytes()
    check_parquet(str(path), content)
    table = pl.read_parquet(content)
    check_ids(table[id_column], str(path), AGAIN)
    return table
