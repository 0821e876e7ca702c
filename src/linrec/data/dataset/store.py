"""The sequence store: every user's history in one flat array, memory-mapped from a folder.

items.npy offsets.npy times.npy     the arrays
item_vectors.npy                    a vector per item, where there are any
users.parquet items.parquet         the caller's own ids, and the features of the items
context-0.npy context-0.parquet ... what else is known of the events, and the names of categories
dataset.json                        format version, fingerprint, features, summary

The first line and users.parquet may instead be in shards, folders that each hold some users.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.dataset import summary as summaries
from linrec.data.dataset.chunked import parts_of, update
from linrec.data.dataset.conditions import Condition
from linrec.data.dataset.context import ContextColumn, chosen_columns, codes_of
from linrec.data.dataset.context_files import (
    ContextEntry,
    array_name,
    read_columns,
    trouble_of,
    write_categories,
)
from linrec.data.dataset.feature import Feature
from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.item_features import Field
from linrec.data.dataset.remote_store import dataset_folder, folder_of
from linrec.data.dataset.repeats import Repeats, repeats_of
from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.store_files import (
    AGAIN,
    FORMAT_VERSION,
    SHARDED_VERSION,
    VECTORS,
    DatasetFile,
    EventFiles,
    FeatureEntry,
    ShardEntry,
    map_array,
    read_description,
    read_table,
    write_shards,
)
from linrec.data.dataset.summary import (
    Summary,
    TimesKind,
    guess_times,
    notes_on_repeats,
    sparsity,
)
from linrec.files.atomic import DATASET_MARKER
from linrec.files.drafts import recover
from linrec.files.guard import reading
from linrec.files.remote import is_file, place
from linrec.types import InputError, argument


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
    copy: Path | None = None  # of what is in object storage: where its files are on this machine
    groups: NDArray[np.int32] | None = None  # [events], which basket or session; None: not known
    context: tuple[ContextColumn, ...] = ()  # what else is known of each event
    read_context: tuple[Field, ...] = ()  # what a model reads of it, see `read_by`
    # [n_items + 1, any width], row PAD first, zeros where an item has no vector; None: none given
    item_vectors: NDArray[np.float32] | None = None

    def __repr__(self) -> str:
        counts = f"users={self.n_users:,}, items={self.n_items:,}, events={self.n_events:,}"
        return f"SequenceStore({counts}, path={None if self.path is None else str(self.path)!r})"

    @property
    def folder(self) -> Path | None:
        """Where its files can be opened."""
        return self.copy or self.path

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
        """Hashes of ids and sequences, of the times and, if there are any, of groups and context.

        Neither path nor features are part of it.
        """
        parts = [self.sequence_fingerprint, self._time_fingerprint]
        if self.groups is not None:
            digest = hashlib.sha256()
            update(digest, self.groups, "<i4")
            parts.append(digest.hexdigest()[:16])
        if self.context:
            parts.append(self._context_fingerprint)
        return "-".join(parts)

    @cached_property
    def _context_fingerprint(self) -> str:
        columns = b"".join(column.fingerprint() for column in self.context)
        return "c" + hashlib.sha256(columns).hexdigest()[:15]

    @cached_property
    def _time_fingerprint(self) -> str:
        digest = hashlib.sha256()
        update(digest, self.times, "<f8")
        return digest.hexdigest()[:16]

    def hash_times(self) -> None:
        """What `fingerprint` needs of the times, for a thread beside the one that asks for it."""
        _ = self._time_fingerprint

    @cached_property
    def sequence_fingerprint(self) -> str:
        """A hash of ids, items and offsets; in format version 1 it was the whole fingerprint."""
        digest = hashlib.sha256()
        for ids in (self.users.ids, self.catalogue.ids):
            text = ids.cast(pl.String)
            digest.update(text.str.len_bytes().to_numpy().astype("<u4").tobytes())
            digest.update(text.str.join("").item().encode())  # all of them, in their order
        update(digest, self.items, "<i4")
        update(digest, self.offsets, "<i8")
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
        """Every user's events, with their times if these are real, and what a model reads."""
        times = self.times if self.times_kind.kind == "real" else None
        return Sequences(
            self.items, self.offsets[:-1], self.offsets[1:], times, context=self._context_codes
        )

    def read_by(self, fields: Sequence[Field]) -> SequenceStore:
        """The same for a model that reads these fields of the context: `sequences` has them."""
        return replace(self, read_context=tuple(fields))

    @cached_property
    def _context_codes(self) -> NDArray[np.int32] | None:
        return codes_of(self.context, self.read_context, self.n_events)

    def where(self, condition: str, setting: str = "targets_where") -> NDArray[np.bool_]:
        """[events], whether each fulfils a condition on its context, such as type=purchase."""
        found = Condition.parse(condition, setting).holds(self.context, named(self))
        if not found.any():
            raise InputError(f"no event of {named(self)} has {argument(setting, condition)}")
        return found

    def weights(self, column: str) -> NDArray[np.float32]:
        """[events], how much each counts as a target."""
        (found,) = chosen_columns(self.context, [column], named(self))
        if found.categories is not None:
            raise InputError(
                f"the context column {column!r} of {named(self)} holds categories, which cannot "
                f"weigh anything; prepare it with {argument('context', f'{column}=numeric')}"
            )
        values = found.whole
        wrong = int((~(values >= 0) | np.isinf(values)).sum())
        if wrong:
            raise InputError(
                f"the context column {column!r} of {named(self)} is missing, negative or infinite "
                f"in {wrong:,} events and cannot weigh them; give each a number from 0 on"
            )
        return values.astype(np.float32)

    def basket_starts(self) -> NDArray[np.bool_]:
        """[events], True on the first event of each basket: of one group, else of one time."""
        same = summaries.same_user(self.offsets)
        marks = np.asarray(self.times if self.groups is None else self.groups)
        return np.concatenate([[True], ~same | (marks[1:] != marks[:-1])])[: self.n_events]

    def popularity(self) -> NDArray[np.int64]:
        """`Sequences.item_counts` of the whole store, [n_items + 1]."""
        return self.sequences().item_counts(self.n_items)

    @cached_property
    def newest(self) -> float:
        """The time of the newest event of all; NaN without real times."""
        if self.times_kind.kind != "real" or not self.n_events:
            return math.nan
        return float(self.times.max())

    def write(
        self,
        path: Path,
        *,
        overwrite: bool = False,
        more: Mapping[str, bytes] | None = None,
        shard_events: int | None = None,
    ) -> SequenceStore:
        """Write the folder in one step and return the store opened from it.

        path: also an address such as s3://bucket/data, where the manifest is written last.
        more: other files to put there, by their names. shard_events: divide it into shards of whole
        users with at most so many events each, or of one user with more.
        """
        path = place(path)
        arrays: dict[str, NDArray[Any]] = {"items": self.items, "times": self.times}
        if self.groups is not None:
            arrays["groups"] = self.groups
        arrays |= {array_name(place): each.values for place, each in enumerate(self.context)}
        with dataset_folder(path, overwrite) as draft:
            shards = write_shards(draft, arrays, self.offsets, self.users.ids, shard_events)
            self.write_manifest(draft, shards, more or {})
        return SequenceStore.open(path)

    def write_manifest(
        self, draft: Path, shards: list[ShardEntry], more: Mapping[str, bytes]
    ) -> None:
        """All that shards have in common, and what makes them a dataset, last."""
        write_categories(draft, self.context)
        self.item_table.write_parquet(draft / "items.parquet")
        if self.item_vectors is not None:
            np.save(draft / VECTORS, self.item_vectors, allow_pickle=False)
        for name, content in more.items():
            (draft / name).write_bytes(content)
        described = DatasetFile(
            format_version=SHARDED_VERSION if shards else FORMAT_VERSION,
            fingerprint=self.fingerprint,
            features=[FeatureEntry(**asdict(feature)) for feature in self.features],
            context=[ContextEntry(name=each.name, kind=each.kind) for each in self.context],
            shards=shards,
            summary=Summary.model_validate(self.summary),
        )
        (draft / DATASET_MARKER).write_text(described.text(), encoding="utf-8")

    @classmethod
    def open(cls, path: Path, *, verify: bool = True) -> SequenceStore:
        """Open what `write` made; the arrays stay memory-mapped, from a copy if it is remote.

        verify: read all of it and compare it with its fingerprint.
        """
        path = place(path)
        folder = folder_of(path)
        recover(folder)
        described = read_description(folder)
        files = EventFiles(folder, described.shards)
        missing = files.lacking(described)
        if missing is not None:
            raise InputError(f"the dataset {path} lacks {missing}; {AGAIN}")
        with reading(f"the dataset {path}", AGAIN):
            item_table = read_table(folder / "items.parquet", "item")
            store = cls(
                items=files.load(folder / "items.npy", np.int32),
                offsets=files.offsets(),
                times=files.load(folder / "times.npy", np.float64),
                users=IdMap(files.users(), first=0),
                catalogue=IdMap(item_table["item"], first=1),
                item_table=item_table,
                features=tuple(Feature(entry.name, entry.kind) for entry in described.features),
                summary=described.summary.model_dump(),
                path=path,
                copy=None if folder is path else folder,
                groups=files.groups(),
                context=read_columns(folder, described.context, files.load),
                item_vectors=map_array(folder / VECTORS, np.float32, 2)
                if (folder / VECTORS).is_file()
                else None,
            )
        if verify:
            _check(store, described)
        return store


def is_dataset(path: str | Path) -> bool:
    """Whether a manifest is there."""
    return is_file(place(path) / DATASET_MARKER)


def named(store: SequenceStore) -> str:
    """A dataset in a message."""
    return "the given data" if store.path is None else str(store.path)


def same_dataset(one: str | None, other: str | None) -> bool:
    """Whether two fingerprints are of one dataset, as far as an older one without times tells."""
    if one is None or other is None or ("-" in one) == ("-" in other):
        return one == other
    return one.partition("-")[0] == other.partition("-")[0]


def _check(store: SequenceStore, described: DatasetFile) -> None:
    trouble = _trouble(store, described)
    if trouble is not None:
        raise InputError(f"the dataset {store.path} is damaged: {trouble}; {AGAIN}")


def _trouble(store: SequenceStore, described: DatasetFile) -> str | None:
    """What no dataset of `write` has, the cheapest checks first."""
    offsets, items = store.offsets, store.items
    columns = ["item", *(feature.name for feature in store.features)]
    per_event = [array for array in (store.times, store.groups) if array is not None]
    if {len(array) for array in per_event} != {store.n_events} or store.n_users != len(store.users):
        return "its arrays differ in length"
    if trouble := trouble_of(store.context, store.n_events):
        return trouble
    if sorted(columns) != sorted(store.item_table.columns):
        return "its item table lacks columns"
    if offsets[0] != 0 or offsets[-1] != store.n_events or (np.diff(offsets) < 0).any():
        return "its offsets do not divide the events among the users"
    if store.n_events and not 1 <= items.min() <= items.max() <= store.n_items:
        return f"its events hold items that are not from 1 to {store.n_items}"
    vectors = store.item_vectors
    if vectors is not None and (
        len(vectors) != store.n_items + 1 or not vectors.size or not np.isfinite(vectors).all()
    ):
        return "its item vectors are not one finite row per item"
    if not all(np.isfinite(part).all() for part in parts_of(store.times)):
        return "its times are not all finite"
    if not same_dataset(described.fingerprint, store.fingerprint) or (
        described.format_version > 1 and described.fingerprint != store.fingerprint
    ):
        return "its contents do not match its fingerprint"
    return None
