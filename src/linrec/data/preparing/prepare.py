"""From an event log to a sequence store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.dataset import summary as said
from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.features import ItemTable, item_table
from linrec.data.preparing.filtering import CodedEvents, filter_events, first_of_each
from linrec.data.preparing.options import Frame, PrepareOptions
from linrec.data.reading.events import Source, read_events
from linrec.files.atomic import check_free
from linrec.types import EventLog

__all__ = ["PrepareOptions", "prepare"]


def prepare(
    events: str | Path | Frame,
    out: str | Path | None = None,
    options: PrepareOptions | None = None,
    *,
    overwrite: bool = False,
    **overrides: Any,
) -> SequenceStore:
    """Make a dataset of an event log.

    events: a file, a folder, a pattern such as "logs/*.parquet", or a polars or pandas frame.
    out: the folder to write; without one the store stays in memory.
    overrides: any field of `PrepareOptions`, by name.
    """
    options = (options or PrepareOptions()).with_overrides(overrides)
    if out is not None:
        check_free(Path(out), overwrite=overwrite)  # before the long read, not after
    source = read_events(events, options)
    store = _build(source, options)
    return store if out is None else store.write(Path(out), overwrite=overwrite)


def _build(source: Source, options: PrepareOptions) -> SequenceStore:
    kept, removed = filter_events(_coded(source.log), options)
    lengths, users = _present(kept.users, source.log.users)
    popularity, items = _present(kept.items, source.log.items)
    offsets = np.concatenate([[0], np.cumsum(lengths[lengths > 0])]).astype(np.int64)
    # from 1, without the gaps that filters left
    index = np.cumsum(popularity > 0).astype(np.int32)
    catalogue = IdMap(items, first=1)
    given = options.items if options.items is not None else source.items_beside
    table = item_table(catalogue, given, source.log.columns["item"], options)
    origin = _origin(source, options, removed, table)
    return SequenceStore(
        items=index[kept.items],
        offsets=offsets,
        times=kept.times,
        users=IdMap(users, first=0),
        catalogue=catalogue,
        item_table=table.table,
        features=table.features,
        summary=_summary(kept, offsets, len(items), origin, (source, table)),
    )


def _coded(log: EventLog) -> CodedEvents:
    columns = {f"{name}s": np.asarray(log.coded[name]) for name in log.coded.columns}
    return CodedEvents(**columns)


def _present(codes: NDArray[np.int32], ids: pl.Series) -> tuple[NDArray[np.int64], pl.Series]:
    """Events of each id, and the ids that have any."""
    counts = np.bincount(codes, minlength=len(ids))
    return counts, ids.filter(pl.Series(counts > 0))


def _origin(
    source: Source, options: PrepareOptions, removed: dict[str, int], table: ItemTable
) -> said.Source:
    return said.Source(
        name=source.log.source,
        format=source.format,
        columns=source.log.columns,
        columns_guessed=list(source.guessed),
        events_read=len(source.log),
        filters=options.filters(),
        removed=removed,
        items_file=table.source,
    )


def _summary(
    kept: CodedEvents,
    offsets: NDArray[np.int64],
    n_items: int,
    origin: said.Source,
    noted: tuple[Source, ItemTable],
) -> dict[str, Any]:
    users, events = len(offsets) - 1, len(kept)
    source, table = noted
    summary = said.Summary(
        users=users,
        items=n_items,
        events=events,
        sparsity=said.sparsity(users, n_items, events),
        lengths=said.lengths_of(offsets),
        time=said.TimeRange(first=float(kept.times.min()), last=float(kept.times.max())),
        tied_share=said.tied_share(kept.times, offsets),
        one_event_users=int((np.diff(offsets) == 1).sum()),
        exact_duplicates=events - int(first_of_each(kept).sum()),
        items_without_features=table.missing,
        source=origin,
    )
    notes = [*source.notes, *said.notes_on(summary), *table.notes]
    return summary.model_copy(update={"notes": notes}).model_dump()
