"""The sequence store: every user's history in one flat array, memory-mapped from a folder.

items.npy offsets.npy times.npy     the arrays
users.parquet items.parquet         the caller's own ids, and the features of the items
dataset.json                        format version, fingerprint, features, summary
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from linrec.data.dataset.ids import IdMap, check_ids
from linrec.data.dataset.repeats import Repeats, repeats_of
from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.summary import (
    Summary,
    TimesKind,
    guess_times,
    notes_on_repeats,
    sparsity,
)
from linrec.files.atomic import DATASET_MARKER, write_folder
from linrec.files.drafts import recover
from linrec.files.expansion import check_parquet
from linrec.files.guard import reading
from linrec.types import InputError
from linrec.validation import explain

FORMAT_VERSION = 2
OLDER_VERSIONS = (1,)  # its fingerprint leaves out the times
CONTENTS = ("items.npy", "offsets.npy", "times.npy", "users.parquet", "items.parquet")
AGAIN = "make it again with `linrec prepare`"

FeatureKind = Literal["categorical", "multi", "numeric", "text"]


@dataclass(frozen=True, slots=True)
class Feature:
    """A column of the item table and its kind."""

    name: str
    kind: FeatureKind


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _FeatureEntry(_Strict):
    name: str
    kind: FeatureKind


class _DatasetFile(_Strict):
    format_version: int
    fingerprint: str
    features: list[_FeatureEntry]
    summary: Summary


@dataclass(frozen=True, eq=False, repr=False)
class SequenceStore:
    """A prepared dataset: the histories of all users end to end, each oldest event first.

    Examples:
        >>> from pathlib import Path
        >>> store = linrec.SequenceStore.open(Path("data"))
        >>> history = store.items[store.offsets[0] : store.offsets[1]]  # of the first user
        >>> len(store.catalogue.ids_of(history)) == len(history)
        True
    """

    items: NDArray[np.int32]  # [events], indices from 1
    offsets: NDArray[np.int64]  # [users + 1]
    times: NDArray[np.float64]  # [events]
    users: IdMap
    catalogue: IdMap
    item_table: pl.DataFrame  # one row per item in index order: "item", then the features
    features: tuple[Feature, ...]
    summary: dict[str, Any]
    path: Path | None = None  # None if only in memory

    def __repr__(self) -> str:
        counts = f"users={self.n_users:,}, items={self.n_items:,}, events={self.n_events:,}"
        return f"SequenceStore({counts}, path={None if self.path is None else str(self.path)!r})"

    @property
    def n_users(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_items(self) -> int:
        return len(self.catalogue)

    @property
    def n_events(self) -> int:
        return len(self.items)

    @property
    def fingerprint(self) -> str:
        """Hashes of ids and sequences and of the times, but not of the path or the features."""
        return f"{self.sequence_fingerprint}-{self._time_fingerprint}"

    @cached_property
    def _time_fingerprint(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.times, dtype="<f8").data)
        return digest.hexdigest()[:16]

    @cached_property
    def sequence_fingerprint(self) -> str:
        """A hash of ids, items and offsets; in format version 1 it was the whole fingerprint."""
        digest = hashlib.sha256()
        for ids in (self.users.ids, self.catalogue.ids):
            text = ids.cast(pl.String)
            digest.update(text.str.len_bytes().to_numpy().astype("<u4").tobytes())
            digest.update("".join(text).encode())
        digest.update(np.ascontiguousarray(self.items, dtype="<i4").data)
        digest.update(np.ascontiguousarray(self.offsets, dtype="<i8").data)
        return digest.hexdigest()[:16]

    @cached_property
    def times_kind(self) -> TimesKind:
        """Whether the times are real or only an order; guessed where the dataset does not say."""
        kind = self.summary.get("times")
        if kind is None:
            return guess_times(self.times, self.offsets)
        return TimesKind(kind, self.summary.get("times_reason") or "")

    @cached_property
    def repeats(self) -> Repeats:
        """How often users come back to an item; counted now where the dataset does not say."""
        events, last = (self.summary.get(name) for name in ("repeat_share", "last_repeat_share"))
        if events is None or last is None:
            return repeats_of(self.items, self.offsets)
        return Repeats(events, last)

    @cached_property
    def full_summary(self) -> dict[str, Any]:
        """The summary, with what datasets of early versions do not say of repeats."""
        if self.summary.get("last_repeat_share") is not None:
            return self.summary
        repeats = self.repeats
        return self.summary | {
            "sparsity": sparsity(self.n_users, self.n_items, self.n_events, repeats),
            "repeat_share": repeats.events,
            "last_repeat_share": repeats.last,
            "notes": [*notes_on_repeats(repeats), *self.summary["notes"]],
        }

    def sequences(self) -> Sequences:
        """Every user's events, with their times if these are real."""
        times = self.times if self.times_kind.kind == "real" else None
        return Sequences(self.items, self.offsets[:-1], self.offsets[1:], times)

    def popularity(self) -> NDArray[np.int64]:
        """`Sequences.item_counts` of the whole store, [n_items + 1]."""
        return self.sequences().item_counts(self.n_items)

    def write(
        self, path: Path, *, overwrite: bool = False, more: Mapping[str, bytes] | None = None
    ) -> SequenceStore:
        """Write the folder in one step and return the store opened from it.

        more: other files to put there, by their names.
        """
        path = Path(path)
        with write_folder(path, overwrite) as draft:
            for name in ("items", "offsets", "times"):
                np.save(draft / f"{name}.npy", getattr(self, name), allow_pickle=False)
            pl.DataFrame({"user": self.users.ids}).write_parquet(draft / "users.parquet")
            self.item_table.write_parquet(draft / "items.parquet")
            for name, content in (more or {}).items():
                (draft / name).write_bytes(content)
            (draft / DATASET_MARKER).write_text(self._describe(), encoding="utf-8")
        return SequenceStore.open(path)

    def _describe(self) -> str:
        return _DatasetFile(
            format_version=FORMAT_VERSION,
            fingerprint=self.fingerprint,
            features=[_FeatureEntry(**asdict(feature)) for feature in self.features],
            summary=Summary.model_validate(self.summary),
        ).model_dump_json(indent=2)

    @classmethod
    def open(cls, path: Path) -> SequenceStore:
        """Memory-map a folder that `write` made, once its fingerprint is checked."""
        path = Path(path)
        recover(path)
        described = _read_description(path)
        missing = [name for name in CONTENTS if not (path / name).is_file()]
        if missing:
            raise InputError(f"the dataset {path} lacks {missing[0]}; {AGAIN}")
        with reading(f"the dataset {path}", AGAIN):
            item_table = _read_table(path / "items.parquet", "item")
            users = _read_table(path / "users.parquet", "user")
            store = cls(
                items=_map(path / "items.npy", np.int32),
                offsets=_map(path / "offsets.npy", np.int64),
                times=_map(path / "times.npy", np.float64),
                users=IdMap(users["user"], first=0),
                catalogue=IdMap(item_table["item"], first=1),
                item_table=item_table,
                features=tuple(Feature(entry.name, entry.kind) for entry in described.features),
                summary=described.summary.model_dump(),
                path=path,
            )
        _check(store, described)
        return store


def named(store: SequenceStore) -> str:
    """A dataset in a message."""
    return "the given data" if store.path is None else str(store.path)


def same_dataset(one: str | None, other: str | None) -> bool:
    """Whether two fingerprints are of one dataset, as far as an older one without times tells."""
    if one is None or other is None or ("-" in one) == ("-" in other):
        return one == other
    return one.partition("-")[0] == other.partition("-")[0]


def _read_description(path: Path) -> _DatasetFile:
    if not path.exists():
        raise InputError(f"there is no dataset at {path}; make one with `linrec prepare`")
    if not (path / DATASET_MARKER).is_file():
        raise InputError(
            f"{path} is not a linrec dataset (it has no {DATASET_MARKER}); "
            "make one with `linrec prepare`"
        )
    with reading(f"{path / DATASET_MARKER}", AGAIN):
        content = json.loads((path / DATASET_MARKER).read_text(encoding="utf-8"))
    # checked first, because another version explains every other difference
    version = content.get("format_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version not in (FORMAT_VERSION, *OLDER_VERSIONS):
        raise InputError(
            f"{path} has format version {version} and this linrec reads version "
            f"{FORMAT_VERSION}; {AGAIN}"
        )
    try:
        return _DatasetFile.model_validate(content)
    except ValidationError as error:
        raise InputError(
            f"{path / DATASET_MARKER} is damaged ({explain(error)}); {AGAIN}"
        ) from error


def _map(path: Path, kind: type[np.generic]) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header may raise anything
        raise ValueError(f"{path.name} is not a whole array") from error
    if array.dtype != kind or array.ndim != 1:
        raise ValueError(f"{path.name} holds {array.dtype} of shape {array.shape}")
    return array


def _read_table(path: Path, id_column: str) -> pl.DataFrame:
    content = path.read_bytes()
    check_parquet(str(path), content)
    table = pl.read_parquet(content)
    check_ids(table[id_column], str(path), AGAIN)
    return table


def _check(store: SequenceStore, described: _DatasetFile) -> None:
    trouble = _trouble(store, described)
    if trouble is not None:
        raise InputError(f"the dataset {store.path} is damaged: {trouble}; {AGAIN}")


def _trouble(store: SequenceStore, described: _DatasetFile) -> str | None:
    """What no dataset of `write` has, the cheapest checks first."""
    offsets, items = store.offsets, store.items
    columns = ["item", *(feature.name for feature in store.features)]
    if len(store.times) != store.n_events or store.n_users != len(store.users):
        return "its arrays differ in length"
    if sorted(columns) != sorted(store.item_table.columns):
        return "its item table lacks columns"
    if offsets[0] != 0 or offsets[-1] != store.n_events or (np.diff(offsets) < 0).any():
        return "its offsets do not divide the events among the users"
    if store.n_events and not 1 <= items.min() <= items.max() <= store.n_items:
        return f"its events hold items that are not from 1 to {store.n_items}"
    if not np.isfinite(store.times).all():
        return "its times are not all finite"
    if not same_dataset(described.fingerprint, store.fingerprint) or (
        described.format_version == FORMAT_VERSION and described.fingerprint != store.fingerprint
    ):
        return "its contents do not match its fingerprint"
    return None
