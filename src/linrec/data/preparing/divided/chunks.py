"""Rows of a file are read and converted; their ids become codes of the chunk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.preparing.divided.job import Job
from linrec.data.preparing.divided.scratch import encode, save, save_tables, whole
from linrec.data.preparing.feature_kinds import infer_kind
from linrec.data.reading.bad_rows import SkippedRows
from linrec.data.reading.chunks import (
    CONTEXT,
    ReadOptions,
    Rows,
    Table,
    open_table,
    read_rows,
    stretches,
)
from linrec.data.reading.formats import format_by_name
from linrec.data.reading.times import TimesLook, look_at
from linrec.files.copies import fetch
from linrec.files.expansion import check_file
from linrec.files.remote import Address

FETCHED = "log"  # the folder of files that were in storage
PROBE = pl.Series(["linrec"])  # its hash must be the same on all machines


class LogFile(NamedTuple):
    """A file under the name that the caller gave, and where that is."""

    name: Path
    at: Path

    def open(self, job: Job, options: ReadOptions) -> Table:
        return open_table(self.name, format_by_name(job.form), options, self.at)


@dataclass(frozen=True)
class Fetch:
    """Copies a file from object storage to where all workers see it."""

    file: LogFile

    def do(self, job: Job) -> None:  # noqa: ARG002 - as every task
        assert isinstance(self.file.name, Address)
        with whole(self.file.at) as draft:
            fetch(self.file.name, draft)


@dataclass(frozen=True)
class Divide:
    """Finds out how a file is divided."""

    file: LogFile
    chunk_rows: int

    def do(self, job: Job) -> list[Rows]:
        options = job.options.reading
        check_file(self.file.at, options.max_expansion, self.file.name)
        return stretches(self.file.open(job, options), job.columns, self.chunk_rows)


class ColumnLook(NamedTuple):
    """What is known of a context column from one chunk."""

    kind: pl.DataType
    guess: str | None  # the kind of its own values, None if there are none


class ChunkRead(NamedTuple):
    rows: int
    skipped: SkippedRows
    look: TimesLook | None
    id_kinds: dict[str, pl.DataType]
    context: dict[str, ColumnLook]
    probe: int


@dataclass(frozen=True)
class ReadChunk:
    """Reads some rows."""

    place: int
    file: LogFile
    rows: Rows

    def do(self, job: Job) -> ChunkRead:
        options, skipped = job.options.reading, SkippedRows()
        table = self.file.open(job, options)
        events = read_rows(table, job.columns, options, skipped, self.rows)
        folder = job.chunk(self.place)
        for role in job.id_roles:
            _write_ids(folder, role, events[role], job.buckets)
        for role in {"time", "rating"} & set(events.columns):
            save(folder / f"{role}.npy", np.asarray(events[role]))
        context = {name: _write_column(folder, n, events[CONTEXT + name], job)
                   for n, name in enumerate(job.context)}  # fmt: skip
        return ChunkRead(
            len(events),
            skipped,
            look_at(np.asarray(events["time"])) if "time" in events else None,
            {role: events[role].dtype for role in job.id_roles},
            context,
            int(PROBE.hash()[0]),
        )


def _write_ids(folder: Path, role: str, ids: pl.Series, buckets: int) -> None:
    """Codes of the rows, and what the codes mean, bucket by bucket."""
    codes, known, first = encode(ids)
    save(folder / f"{role}.npy", codes)
    bucket = known.cast(pl.String).hash().to_numpy() % np.uint64(buckets)
    order = np.argsort(bucket, kind="stable")
    counts = np.bincount(codes, minlength=len(known))
    numbers = {"code": np.arange(len(known)), "row": first, "rows": counts}
    narrow = np.int32 if len(ids) < 2**31 else np.int64
    table = pl.DataFrame({"id": known} | {name: n.astype(narrow) for name, n in numbers.items()})
    table = table[order]
    bounds = np.searchsorted(bucket[order], np.arange(buckets + 1, dtype=np.uint64))
    parts = [table[bounds[n] : bounds[n + 1]] for n in range(buckets)]
    save_tables(folder / f"{role}-ids.arrow", parts)


def _write_column(folder: Path, n: int, column: pl.Series, job: Job) -> ColumnLook:
    """A context column as it was read, and each of its values once where they may be categories."""
    values = column.alias(job.context[n])
    nested, given = values.dtype.is_nested(), job.options.context_kinds[values.name]
    if nested:
        return ColumnLook(values.dtype, None if values.null_count() == len(values) else "multi")
    save_tables(folder / f"context-{n}.arrow", [values.to_frame("value")])
    once = values.unique()
    if given != "numeric":
        save_tables(folder / f"context-{n}-once.arrow", [once.to_frame("value")])
    return ColumnLook(values.dtype, infer_kind(once, None, None))


def event_arrays(folder: Path, names: set[str]) -> dict[str, NDArray[Any]]:
    """Those columns of a chunk that are numbers."""
    return {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in names}
