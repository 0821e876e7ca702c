"""From an event log to a sequence store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.cluster.options import EngineOptions
from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.remote_store import check_free
from linrec.data.dataset.store import SequenceStore
from linrec.data.dataset.summary import TimesKind, guess_times
from linrec.data.dataset.ties import orders_of
from linrec.data.preparing.catalogue import catalogue_of
from linrec.data.preparing.context import context_columns
from linrec.data.preparing.facts import Facts, Made, check_order, given_times_kind, summary_of
from linrec.data.preparing.filtering import filter_events
from linrec.data.preparing.options import Frame, PrepareOptions
from linrec.data.reading.bad_rows import SAMPLE_FILE
from linrec.data.reading.events import ArrowStream, ReadResult, files_of, read_events
from linrec.files.remote import place
from linrec.types import EventLog, InputError, argument

__all__ = ["PrepareOptions", "prepare"]


def prepare(
    events: str | Path | Sequence[str | Path] | Frame | ArrowStream,
    out: str | Path | None = None,
    options: PrepareOptions | None = None,
    *,
    overwrite: bool = False,
    shard_events: int | None = None,
    engine: EngineOptions | None = None,
    **overrides: Any,
) -> SequenceStore:
    """Make a dataset from an event log.

    Args:
        events: A file, a folder, a pattern such as "logs/*.parquet", a list of files, a polars or
            pandas frame, a pyarrow table or a DuckDB relation. Paths may be s3:// or gs://.
        out: The folder to write, also s3:// or gs://; without one the store stays in memory.
        options: How events become sequences.
        overwrite: Replace a dataset at `out`.
        shard_events: Write shards of whole users with at most so many events each.
        engine: Where the work runs; the dataset is the same.
        overrides: Any field of `PrepareOptions`, by name.

    Examples:
        >>> data = linrec.prepare("events.csv", items="items.csv", min_item_events=2)
        >>> data.n_users
        150
    """
    options = (options or PrepareOptions()).with_overrides(overrides)
    if shard_events is not None and shard_events < 1:
        raise InputError(f"{argument('shard_events', shard_events)} must be at least 1")
    if engine is not None and engine.engine != "local":
        return _divided(events, out, options, engine, overwrite, shard_events)
    if out is not None:
        check_free(place(out), overwrite=overwrite)  # before the long read, not after
    read = read_events(events, options.reading)
    store = _build(read, options)
    if out is None:
        return store
    more = {SAMPLE_FILE: read.skipped.sample()} if read.skipped.total else {}
    return store.write(place(out), overwrite=overwrite, more=more, shard_events=shard_events)


def _divided(
    events: object,
    out: str | Path | None,
    options: PrepareOptions,
    engine: EngineOptions,
    overwrite: bool,
    shard_events: int | None,
) -> SequenceStore:
    from linrec.data.preparing.divided.driver import prepare_divided

    files = files_of(events, options.reading)
    if files is None or out is None:
        what = "reads files" if files is None else f"writes a dataset to {argument('out')}"
        raise InputError(
            f"{argument('engine', engine.engine)} {what}; give a path, or leave "
            f"{argument('engine')} out"
        )
    check_free(place(out), overwrite=overwrite)
    return prepare_divided(
        files, place(out), options, engine, overwrite=overwrite, shard_events=shard_events
    )


def _build(read: ReadResult, options: PrepareOptions) -> SequenceStore:
    check_order(read, options)
    context = context_columns(read, options.context_kinds)
    log = replace(read.log, context=tuple(column.values for column in context))
    kept, removed = filter_events(log, options)
    lengths, users = _present(kept.users, kept.user_ids)
    item_events, items = _present(kept.items, kept.item_ids)
    offsets = np.concatenate([[0], np.cumsum(lengths[lengths > 0])]).astype(np.int64)
    # from 1, without the gaps that filters left
    index = np.cumsum(item_events > 0).astype(np.int32)
    catalogue = catalogue_of(items, read, options)
    facts = Facts.of(kept, offsets, orders_of(kept.item_ids))
    times = _times_kind(kept, offsets, read, options)
    table, vectors = catalogue.table, catalogue.vectors
    made = Made(read, options, removed, offsets, facts, times, table, vectors)
    return SequenceStore(
        items=index[kept.items],
        offsets=offsets,
        times=kept.times,
        groups=kept.groups,
        context=tuple(
            replace(column, values=values)
            for column, values in zip(context, kept.context, strict=True)
        ),
        users=IdMap(users, first=0),
        catalogue=catalogue.ids,
        item_table=table.table,
        features=table.features,
        summary=summary_of(made),
        item_vectors=None if vectors is None else vectors.table,
    )


def _present(positions: NDArray[np.int32], ids: pl.Series) -> tuple[NDArray[np.int64], pl.Series]:
    """Events of each id, and the ids that have any."""
    counts = np.bincount(positions, minlength=len(ids))
    return counts, ids.filter(pl.Series(counts > 0))


def _times_kind(
    kept: EventLog, offsets: NDArray[np.int64], read: ReadResult, options: PrepareOptions
) -> TimesKind:
    return given_times_kind(read, options) or guess_times(kept.times, offsets, read.log.times)
