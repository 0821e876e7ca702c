"""From an event log to a sequence store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.dataset import summary as summaries
from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.repeats import repeats_of
from linrec.data.dataset.store import SequenceStore
from linrec.data.dataset.ties import ascending_share
from linrec.data.preparing.context import context_columns
from linrec.data.preparing.features import ItemTable, item_table
from linrec.data.preparing.filtering import filter_events, first_of_each
from linrec.data.preparing.options import Frame, PrepareOptions
from linrec.data.preparing.vectors import PlacedVectors, place_vectors, read_vectors
from linrec.data.reading.bad_rows import SAMPLE_FILE
from linrec.data.reading.columns import FILE_ORDER
from linrec.data.reading.events import ArrowStream, ReadResult, read_events
from linrec.files.atomic import check_free
from linrec.types import EventLog, InputError, argument

__all__ = ["PrepareOptions", "prepare"]


def prepare(
    events: str | Path | Sequence[str | Path] | Frame | ArrowStream,
    out: str | Path | None = None,
    options: PrepareOptions | None = None,
    *,
    overwrite: bool = False,
    shard_events: int | None = None,
    **overrides: Any,
) -> SequenceStore:
    """Make a dataset from an event log.

    Args:
        events: A file, a folder, a pattern such as "logs/*.parquet", a list of files, a polars or
            pandas frame, a pyarrow table or a DuckDB relation.
        out: The folder to write; without one the store stays in memory.
        options: How events become sequences.
        overwrite: Replace a dataset at `out`.
        shard_events: Write shards of whole users with at most so many events each.
        overrides: Any field of `PrepareOptions`, by name.

    Examples:
        >>> data = linrec.prepare("events.csv", items="items.csv", min_item_events=2)
        >>> data.n_users
        150
    """
    options = (options or PrepareOptions()).with_overrides(overrides)
    if shard_events is not None and shard_events < 1:
        raise InputError(f"{argument('shard_events', shard_events)} must be at least 1")
    if out is not None:
        check_free(Path(out), overwrite=overwrite)  # before the long read, not after
    read = read_events(events, options.reading)
    store = _build(read, options)
    if out is None:
        return store
    more = {SAMPLE_FILE: read.skipped.sample()} if read.skipped.total else {}
    return store.write(Path(out), overwrite=overwrite, more=more, shard_events=shard_events)


def _build(read: ReadResult, options: PrepareOptions) -> SequenceStore:
    context = context_columns(read, options.context_kinds)
    log = replace(read.log, context=tuple(column.values for column in context))
    kept, removed = filter_events(log, options)
    lengths, users = _present(kept.users, kept.user_ids)
    item_events, items = _present(kept.items, kept.item_ids)
    offsets = np.concatenate([[0], np.cumsum(lengths[lengths > 0])]).astype(np.int64)
    # from 1, without the gaps that filters left
    index = np.cumsum(item_events > 0).astype(np.int32)
    catalogue, vectors = IdMap(items, first=1), None
    if options.item_vectors is not None:
        found = read_vectors(options.item_vectors, read.columns["item"], options.max_expansion)
        vectors = place_vectors(found, catalogue)
        catalogue = vectors.catalogue
    given = options.items if options.items is not None else read.items_beside
    table = item_table(catalogue, given, read.columns["item"], options)
    origin = _origin(read, options, removed, table)
    times = _times_kind(kept, offsets, read, options)
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
        catalogue=catalogue,
        item_table=table.table,
        features=table.features,
        summary=_summary(kept, offsets, origin, times, (read, table, vectors, options)),
        item_vectors=None if vectors is None else vectors.table,
    )


def _present(positions: NDArray[np.int32], ids: pl.Series) -> tuple[NDArray[np.int64], pl.Series]:
    """Events of each id, and the ids that have any."""
    counts = np.bincount(positions, minlength=len(ids))
    return counts, ids.filter(pl.Series(counts > 0))


def _origin(
    read: ReadResult, options: PrepareOptions, removed: dict[str, int], table: ItemTable
) -> summaries.Source:
    return summaries.Source(
        name=read.source,
        format=read.format,
        columns=read.columns if "time" in read.columns else read.columns | {"time": FILE_ORDER},
        columns_guessed=list(read.guessed),
        events_read=len(read.log),
        skipped=dict(read.skipped.counts),
        filters=options.filters(),
        removed=removed,
        items_file=table.source,
    )


def _times_kind(
    kept: EventLog, offsets: NDArray[np.int64], read: ReadResult, options: PrepareOptions
) -> summaries.TimesKind:
    if "time" not in read.columns:
        return summaries.TimesKind("order", "the order of the rows")
    if options.times is not None:
        return summaries.TimesKind("order" if options.times == "order" else "real", "given")
    return summaries.guess_times(kept.times, offsets, read.log.times)


def _summary(
    kept: EventLog,
    offsets: NDArray[np.int64],
    origin: summaries.Source,
    times: summaries.TimesKind,
    noted: tuple[ReadResult, ItemTable, PlacedVectors | None, PrepareOptions],
) -> dict[str, Any]:
    users, events = len(offsets) - 1, len(kept)
    read, table, vectors, options = noted
    n_items = len(table.table)
    repeats = repeats_of(kept.items, offsets)
    summary = summaries.Summary(
        users=users,
        items=n_items,
        events=events,
        sparsity=summaries.sparsity(users, n_items, events, repeats),
        repeat_share=repeats.events,
        last_repeat_share=repeats.last,
        lengths=summaries.lengths_of(offsets),
        time=summaries.TimeRange(first=float(kept.times.min()), last=float(kept.times.max())),
        times=times.kind,
        times_reason=times.reason,
        tied_share=summaries.tied_share(kept.times, offsets),
        **_ties(kept, offsets, options),
        one_event_users=int((np.diff(offsets) == 1).sum()),
        exact_duplicates=events - int(first_of_each(kept).sum()),
        items_without_features=table.missing,
        vectors=_vectors(vectors),
        source=origin,
    )
    notes = [*read.notes, *summaries.notes_on(summary), *table.notes]
    notes += [] if vectors is None else vectors.notes
    return summary.model_copy(update={"notes": notes}).model_dump()


def _vectors(placed: PlacedVectors | None) -> summaries.Vectors | None:
    if placed is None:
        return None
    return summaries.Vectors(
        source=placed.source,
        width=placed.table.shape[1],
        items_without_events=placed.without_events,
        items_without_vector=placed.without_vector,
    )


def _ties(kept: EventLog, offsets: NDArray[np.int64], options: PrepareOptions) -> dict[str, Any]:
    """How tied events are ordered, and how many baskets there are where a column says."""
    tied = summaries.tied(kept.times, offsets)
    same, shuffled = summaries.same_user(offsets), options.ties == "shuffle"
    if kept.groups is not None:
        same &= kept.groups[1:] == kept.groups[:-1]
    return {
        "ties": options.ties,
        "ties_seed": options.ties_seed if shuffled else None,
        "ties_ascending": ascending_share(kept.items, tied & same, kept.item_ids),
        "baskets": None if kept.groups is None else len(kept) - int(same.sum()),
    }
