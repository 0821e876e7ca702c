"""From files or frames to an EventLog: open, choose columns, convert values, number the ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np
import polars as pl

from linrec.data.reading.bad_rows import SkippedRows
from linrec.data.reading.chunks import (
    CONTEXT,
    ROLES,
    ReadOptions,
    Table,
    open_table,
    read_rows,
    stretches,
)
from linrec.data.reading.columns import FILE_ORDER, choose_columns, find_column
from linrec.data.reading.formats import Format, Scan, find_files, list_files
from linrec.data.reading.numbering import Numbering
from linrec.data.reading.times import date_text, in_seconds
from linrec.files.copies import here
from linrec.files.expansion import check_file
from linrec.files.guard import reading
from linrec.files.remote import place
from linrec.types import EventLog, InputError

FRAME = "the given frame"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadInfo:
    """How events were read."""

    source: str
    format: str
    columns: dict[str, str]  # our name -> the source's
    guessed: tuple[str, ...]  # our names of the columns that the caller did not set
    items_beside: Path | None
    rows: int  # that are events
    notes: tuple[str, ...] = ()
    skipped: SkippedRows = field(default_factory=SkippedRows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult(ReadInfo):
    """Events as they were read."""

    log: EventLog
    context: pl.DataFrame = field(default_factory=pl.DataFrame)  # by the names in the options
    context_declared: dict[str, str] = field(default_factory=dict)  # kinds that a header declares


class Files(NamedTuple):
    """What a path or a list of paths stands for."""

    name: str
    form: Format
    paths: list[Path]


class Chosen(NamedTuple):
    """Which columns of the first file, and so of all, are read as what."""

    columns: dict[str, str]  # our name -> the source's
    context: dict[str, str]  # the same of those that are kept as they are
    guessed: tuple[str, ...]
    declared: dict[str, str]  # kinds that a header declares for `context`, by the caller's names

    @property
    def all(self) -> dict[str, str]:
        return self.columns | self.context


class ArrowStream(Protocol):
    """A table that offers Arrow's stream protocol, as pyarrow's and DuckDB's do."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def read_events(source: object, options: ReadOptions) -> ReadResult:
    """Read a path, a folder, a pattern, a list of paths or a frame; only the needed columns."""
    files = files_of(source, options)
    if files is None:
        table = Table(Scan(as_polars(source).lazy()), FRAME)
        return _read([table], FRAME, "frame", options, None)
    beside = files.form.items_beside(files.paths[0])
    with here(files.paths) as places:
        pairs = zip(files.paths, places, strict=True)
        tables = [_open(path, at, files.form, options) for path, at in pairs]
        return _read(tables, files.name, files.form.name, options, beside)


def files_of(source: object, options: ReadOptions) -> Files | None:
    """The files that a caller means; None if it is something else."""
    if isinstance(source, str | Path):
        return Files(str(place(source)), *find_files(source, options.format))
    if _are_paths(source):
        form, paths = list_files(source, options.format)
        return Files(f"{len(paths)} files from {paths[0]} on", form, paths)
    return None


def _are_paths(source: object) -> TypeGuard[Sequence[str | Path]]:
    if not isinstance(source, list | tuple) or not source:
        return False
    return all(isinstance(path, str | Path) for path in source)


def as_polars(frame: Any) -> pl.DataFrame:
    """A supported frame as a polars one; other libraries are recognised without an import.

    pyarrow tables, DuckDB relations and many others offer their data by Arrow's stream protocol.
    """
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        with reading(FRAME, "check the query behind it"):
            return frame.collect()
    if type(frame).__module__.partition(".")[0] == "pandas" and hasattr(frame, "columns"):
        with reading(FRAME, "give each column one type"):
            converted: pl.DataFrame = pl.from_pandas(frame)
            return converted
    if hasattr(frame, "__arrow_c_stream__"):
        with reading(FRAME, "check the table or the query behind it"):
            return pl.DataFrame(frame)
    raise InputError(
        f"cannot read events from a {type(frame).__name__}; give a path, a list of paths, a polars "
        "or pandas frame, a pyarrow table or a DuckDB relation"
    )


def _open(path: Path, at: Path, form: Format, options: ReadOptions) -> Table:
    check_file(at, options.max_expansion, path)
    return open_table(path, form, options, at)


def choose(table: Table, options: ReadOptions) -> Chosen:
    """The columns of the first file, by their names."""
    given = {role: getattr(options, role) for role in ROLES}
    names = table.schema.names()
    without = set() if options.with_rating else {"rating"}
    if options.group is None:
        without.add("group")
    if options.time == FILE_ORDER and FILE_ORDER not in names:
        without.add("time")
    roles = [role for role in ROLES if role not in without]
    columns = choose_columns(names, given, roles, table.name)
    kept = {name: find_column("context", name, names, table.name) for name in options.context}
    declared = table.scan.declared
    return Chosen(
        columns,
        {f"{CONTEXT}{name}": column for name, column in kept.items()},
        tuple(role for role in roles if given[role] is None),
        {name: declared[column] for name, column in kept.items() if column in declared},
    )


def check_rows(source: str, rows: int, skipped: SkippedRows) -> None:
    """Refuse a log without an event."""
    if rows:
        return
    if skipped.total:
        raise InputError(f"{source} has no good row: {skipped.note(0)[:-1]}; correct them")
    raise InputError(f"{source} holds no events; give a file with at least one row")


def _read(
    tables: Sequence[Table],
    source: str,
    format_name: str,
    options: ReadOptions,
    items_beside: Path | None,
) -> ReadResult:
    chosen, skipped = choose(tables[0], options), SkippedRows()
    log, context = _event_log(tables, chosen.all, options, skipped)
    check_rows(source, len(log), skipped)
    notes: tuple[str, ...] = ()
    if "time" in chosen.columns:
        log, notes = _with_seconds(log, source, chosen.columns["time"], options)
        notes += precision_note(tables[0], chosen.columns["time"])
    if skipped.total:
        notes += (skipped.note(len(log)),)
    return ReadResult(
        log=log, source=source, format=format_name, columns=chosen.columns, guessed=chosen.guessed,
        items_beside=items_beside, rows=len(log), notes=notes, skipped=skipped, context=context,
        context_declared=chosen.declared,
    )  # fmt: skip


def _with_seconds(
    log: EventLog, source: str, column: str, options: ReadOptions
) -> tuple[EventLog, tuple[str, ...]]:
    """The log with its times in seconds, whose unit only the whole log shows, and a note."""
    if options.time_unit is not None or options.time_format is not None:
        return log, ()
    seconds, looks = in_seconds(log.times, times_of(source, column))
    if looks is None:
        return log, ()
    return replace(log, times=seconds), (unit_note(column, looks, seconds.min(), seconds.max()),)


def times_of(source: str, column: str) -> str:
    """The times of a log in a message."""
    return f"{source}, column {column!r},"


def unit_note(column: str, looks: str, first: float, last: float) -> str:
    dates = f"from {date_text(first)} to {date_text(last)}"
    return f"The times in {column!r} were read as {looks}, {dates}."


def _event_log(
    tables: Sequence[Table], columns: dict[str, str], options: ReadOptions, skipped: SkippedRows
) -> tuple[EventLog, pl.DataFrame]:
    """All events, and their context; the ids themselves are held for one chunk at a time."""
    ids = {role: Numbering() for role in ("user", "item", "group") if role in columns}
    chunks = [
        chunk.with_columns(**{role: ids[role].number(chunk[role]) for role in ids})
        for chunk in _chunks(tables, columns, options, skipped)
    ]
    # files may differ in the type of a column that is kept as it is
    relaxed = any(role.startswith(CONTEXT) for role in columns)
    events = pl.concat(chunks, how="vertical_relaxed" if relaxed else "vertical", rechunk=True)
    kept = events.select(pl.col(f"^{CONTEXT}.*$").name.map(lambda role: role.removeprefix(CONTEXT)))
    log = EventLog(
        users=np.asarray(events["user"]),
        items=np.asarray(events["item"]),
        times=np.asarray(events["time"]) if "time" in columns else np.arange(float(len(events))),
        user_ids=ids["user"].ids,
        item_ids=ids["item"].ids,
        ratings=np.asarray(events["rating"]) if "rating" in columns else None,
        groups=np.asarray(events["group"]) if "group" in columns else None,
    )
    return log, kept


def _chunks(
    tables: Sequence[Table], columns: dict[str, str], options: ReadOptions, skipped: SkippedRows
) -> Iterator[pl.DataFrame]:
    for table in tables:
        for rows in stretches(table, columns):
            yield read_rows(table, columns, options, skipped, rows)


def precision_note(table: Table, time: str) -> tuple[str, ...]:
    if table.schema[time] != pl.Float32:
        return ()
    return (
        f"The times in {time!r} are 32-bit floats, which near today's unix seconds are a minute "
        "apart: events within a minute may be in the wrong order. Store them in 64 bits.",
    )
