"""From sorted events of ranges to a dataset: its arrays, what they share, and its manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.dataset.context_files import array_name
from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.remote_store import dataset_folder
from linrec.data.dataset.store import SequenceStore
from linrec.data.dataset.store_files import EventFiles, ShardEntry, write_users
from linrec.data.dataset.summary import Steps, TimesKind
from linrec.data.dataset.ties import orders_of
from linrec.data.preparing.catalogue import Catalogue, catalogue_of
from linrec.data.preparing.divided.context import ColumnPlan
from linrec.data.preparing.divided.core import Core
from linrec.data.preparing.divided.histories import Range
from linrec.data.preparing.divided.job import Job
from linrec.data.preparing.divided.numbering import Numbered, ids_of
from linrec.data.preparing.divided.output import Layout, WriteRange
from linrec.data.preparing.divided.scratch import save
from linrec.data.preparing.facts import Facts, Made, summary_of, total
from linrec.data.preparing.options import PrepareOptions
from linrec.data.reading.bad_rows import SAMPLE_FILE
from linrec.data.reading.events import ReadInfo

RunTasks = Callable[[str, Sequence[Any]], list[Any]]


@dataclass(frozen=True)
class Finished:
    """Events that are sorted and filtered, range by range."""

    job: Job
    options: PrepareOptions
    read: ReadInfo
    columns: list[ColumnPlan]
    numbered: dict[str, Numbered]
    ranges: list[Range]
    core: Core
    removed: dict[str, int]
    times_kind: Callable[[Steps | None], TimesKind]


def finish(
    made: Finished, run: RunTasks, out: Path, *, overwrite: bool, shard_events: int | None
) -> SequenceStore:
    lengths = made.core.lengths()
    offsets = np.concatenate([[0], np.cumsum(lengths[lengths > 0])]).astype(np.int64)
    with ThreadPoolExecutor(1) as beside:  # the workers wait for both
        given = beside.submit(ids_of, made.job, made.numbered["user"], lengths > 0)
        items, users = _number_items(made), given.result()
    catalogue = catalogue_of(items, made.read, made.options)
    skipped = made.read.skipped
    more = {SAMPLE_FILE: skipped.sample()} if skipped.total else {}
    with dataset_folder(out, overwrite) as draft:
        layout = Layout.of(draft.resolve(), offsets, shard_events)
        layout.create(_kinds(made))
        facts, steps = _write(made, run, layout, lengths)
        entries = _users(layout, offsets, users, sharded=shard_events is not None)
        described = Made(
            made.read, made.options, made.removed, offsets, facts, made.times_kind(steps),
            catalogue.table, catalogue.vectors,
        )  # fmt: skip
        store = _store(made, draft, entries, catalogue, (offsets, users, summary_of(described)))
        with ThreadPoolExecutor(1) as beside:  # the workers have nothing to do any more
            beside.submit(store.hash_times)
            store.write_manifest(draft, entries, more)
    # its fingerprint was just made from these files
    return SequenceStore.open(out, verify=False)


def _number_items(made: Finished) -> pl.Series:
    """The ids of the items that are left; leaves for the ranges their indices and orders."""
    numbered, kept = made.numbered["item"], made.core.counts > 0
    every = ids_of(made.job, numbered, np.ones(len(kept), bool))
    save(made.job.folder / "index.npy", np.cumsum(kept).astype(np.int32))
    for n, order in enumerate(orders_of(every)):
        save(made.job.folder / f"order-{n}.npy", order)
    return every.filter(pl.Series(kept))


def _kinds(made: Finished) -> dict[str, np.dtype[Any]]:
    """The arrays with a value per event, by their names."""
    kinds: dict[str, np.dtype[Any]] = {"items": np.dtype(np.int32), "times": np.dtype(np.float64)}
    if "group" in made.numbered:
        kinds["groups"] = np.dtype(np.int32)
    for each in made.columns:
        kind = np.float64 if each.kind == "numeric" else np.int32
        kinds[array_name(each.place)] = np.dtype(kind)
    return kinds


def _write(
    made: Finished, run: RunTasks, layout: Layout, lengths: NDArray[np.int64]
) -> tuple[Facts, Steps | None]:
    """Have the ranges written; what all of their events are."""
    before = np.concatenate([[0], np.cumsum(lengths)])
    orders = len(list(made.job.folder.glob("order-*.npy")))
    tasks = [
        WriteRange(
            each, made.core.round, len(made.columns), int(before[each.first]), layout, orders
        )
        for each in made.ranges
    ]
    found = [each for each in run("writing", tasks) if each is not None]
    steps = [each for _, each in found if each is not None]
    widest = Steps(min(s.min for s in steps), max(s.max for s in steps)) if steps else None
    return total([facts for facts, _ in found]), widest


def _users(
    layout: Layout, offsets: NDArray[np.int64], users: pl.Series, *, sharded: bool
) -> list[ShardEntry]:
    """What each shard has of users; no entries without shards."""
    entries = []
    for shard in layout.shards:
        own = offsets[shard.users.start : shard.users.stop + 1]
        chosen = users.slice(shard.users.start, len(own) - 1)
        entries.append(write_users(shard.folder, own - own[0], chosen))
    return entries if sharded else []


def _store(
    made: Finished,
    draft: Path,
    entries: list[ShardEntry],
    catalogue: Catalogue,
    described: tuple[NDArray[np.int64], pl.Series, dict[str, Any]],
) -> SequenceStore:
    """The dataset as it will be opened, its arrays mapped."""
    files, (offsets, users, summary) = EventFiles(draft, entries), described
    kinds = {name: kind.type for name, kind in _kinds(made).items()}
    arrays = {name: files.load(Path(f"{name}.npy"), kind) for name, kind in kinds.items()}
    vectors = catalogue.vectors
    return SequenceStore(
        items=arrays["items"],
        offsets=offsets,
        times=arrays["times"],
        groups=arrays.get("groups"),
        context=tuple(
            each.column(made.job, arrays[array_name(each.place)]) for each in made.columns
        ),
        users=IdMap(users, first=0),
        catalogue=catalogue.ids,
        item_table=catalogue.table.table,
        features=catalogue.table.features,
        summary=summary,
        item_vectors=None if vectors is None else vectors.table,
    )
