"""From files or frames to an EventLog: open, choose columns, convert values, number the ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import numpy as np
import polars as pl

from linrec.data.reading import values
from linrec.data.reading.bad_rows import SkippedRows
from linrec.data.reading.columns import FILE_ORDER, choose_columns, find_column
from linrec.data.reading.formats import Format, Scan, find_files, list_files, with_partitions
from linrec.data.reading.times import date_text, in_seconds, times
from linrec.files.expansion import MAX_EXPANSION, check_file
from linrec.files.guard import reading
from linrec.types import EventLog, InputError

FRAME = "the given frame"
CHUNK_ROWS = 1 << 21

ROLES = ("user", "item", "time", "rating", "group")
CONTEXT = "context "  # begins the role of a column that is kept as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Which columns are read, and from what format; None guesses."""

    user: str | None = None
    item: str | None = None
    time: str | None = None
    rating: str | None = None
    group: str | None = None  # the column of the basket or session; never guessed
    with_rating: bool = False
    format: str | None = None
    time_unit: str | None = None
    time_format: str | None = None
    max_expansion: int = MAX_EXPANSION
    skip_bad_rows: bool = False
    context: tuple[str, ...] = ()  # other columns to keep

    def convert(self, column: values.Column) -> pl.Series:
        """A column in the type of its role."""
        if column.role.startswith(CONTEXT):
            return values.stripped(column.values) if column.untyped else column.values
        if column.role == "time":
            return times(column, self.time_unit, self.time_format, by_majority=self.skip_bad_rows)
        return values.numbers(column) if column.role == "rating" else values.ids(column)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Events as they were read, and how."""

    log: EventLog
    source: str
    format: str
    columns: dict[str, str]  # our name -> the source's
    guessed: tuple[str, ...]  # our names of the columns that the caller did not set
    items_beside: Path | None
    notes: tuple[str, ...] = ()
    skipped: SkippedRows = field(default_factory=SkippedRows)
    context: pl.DataFrame = field(default_factory=pl.DataFrame)  # by the names in the options
    context_declared: dict[str, str] = field(default_factory=dict)  # kinds that a header declares


@dataclass(frozen=True, slots=True)
class _Table:
    """One file or frame, opened but not read."""

    scan: Scan
    name: str
    path: Path | None = None
    lines_before: int | None = None

    @property
    def schema(self) -> pl.Schema:
        with reading(self.name):
            return self.scan.frame.collect_schema()


class ArrowStream(Protocol):
    """A table that offers Arrow's stream protocol, as pyarrow's and DuckDB's do."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class Numbering:
    """Numbers ids in the order of their first appearance, chunk by chunk."""

    def __init__(self) -> None:
        self._known: pl.DataFrame | None = None  # id, number

    @property
    def ids(self) -> pl.Series:
        """The ids by their numbers, each once."""
        assert self._known is not None, "nothing was numbered"
        return self._known["id"]

    def number(self, ids: pl.Series) -> pl.Series:
        """The number of each id, int32; new ids get the next numbers."""
        chunk = pl.DataFrame({"id": self._same_type(ids)})
        unique = chunk.unique(maintain_order=True)
        if self._known is None:
            self._known = unique.with_columns(number=pl.int_range(len(unique), dtype=pl.Int32))
        else:
            new = unique.join(self._known, on="id", how="anti", maintain_order="left")
            first, last = len(self._known), len(self._known) + len(new)
            numbers = pl.int_range(first, last, dtype=pl.Int32)
            self._known = pl.concat([self._known, new.with_columns(number=numbers)], rechunk=True)
        return chunk.join(self._known, on="id", how="left", maintain_order="left")["number"]

    def _same_type(self, ids: pl.Series) -> pl.Series:
        """Ids that are integers in one chunk and names in another are names."""
        if self._known is None or self._known.schema["id"] == ids.dtype:
            return ids
        self._known = self._known.cast({"id": pl.String})
        return ids.cast(pl.String)


def read_events(source: object, options: ReadOptions) -> ReadResult:
    """Read a path, a folder, a pattern, a list of paths or a frame; only the needed columns."""
    if isinstance(source, str | Path):
        form, paths = find_files(source, options.format)
        return _read_files(str(source), form, paths, options)
    if _are_paths(source):
        form, paths = list_files(source, options.format)
        return _read_files(f"{len(paths)} files from {paths[0]} on", form, paths, options)
    table = _Table(Scan(as_polars(source).lazy()), FRAME)
    return _read([table], FRAME, "frame", options, None)


def _are_paths(source: object) -> TypeGuard[Sequence[str | Path]]:
    if not isinstance(source, list | tuple) or not source:
        return False
    return all(isinstance(path, str | Path) for path in source)


def _read_files(name: str, form: Format, paths: Sequence[Path], options: ReadOptions) -> ReadResult:
    tables = [_open(path, form, options) for path in paths]
    return _read(tables, name, form.name, options, form.items_beside(paths[0]))


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


def _open(path: Path, form: Format, options: ReadOptions) -> _Table:
    check_file(path, options.max_expansion)
    with reading(str(path)):
        named = {getattr(options, role) for role in ROLES} | set(options.context)
        scan = with_partitions(_scan(path, form, options), path, named)
        return _Table(scan, str(path), path, form.lines_before)


def _scan(path: Path, form: Format, options: ReadOptions) -> Scan:
    """With lines that are not rows told from the others, if they are to be left out."""
    if not options.skip_bad_rows or form.scan_readable is None:
        return form.scan(path)
    try:
        scan = form.scan(path)
        scan.frame.select(pl.all().null_count()).collect()  # one such line fails it all
        return scan
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return form.scan_readable(path)


def _read(
    tables: Sequence[_Table],
    source: str,
    format_name: str,
    options: ReadOptions,
    items_beside: Path | None,
) -> ReadResult:
    given = {role: getattr(options, role) for role in ROLES}
    names = tables[0].schema.names()
    without = set() if options.with_rating else {"rating"}
    if options.group is None:
        without.add("group")
    if options.time == FILE_ORDER and FILE_ORDER not in names:
        without.add("time")
    roles = [role for role in ROLES if role not in without]
    columns = choose_columns(names, given, roles, tables[0].name)
    skipped = SkippedRows()
    kept = {
        f"{CONTEXT}{name}": find_column("context", name, names, tables[0].name)
        for name in options.context
    }
    log, context = _event_log(tables, columns | kept, options, skipped)
    if not len(log):
        if skipped.total:
            raise InputError(f"{source} has no good row: {skipped.note(0)[:-1]}; correct them")
        raise InputError(f"{source} holds no events; give a file with at least one row")
    guessed = tuple(role for role in roles if given[role] is None)
    notes: tuple[str, ...] = ()
    if "time" in columns:
        log, notes = _with_seconds(log, source, columns["time"], options)
        notes += _precision_note(tables[0], columns["time"])
    if skipped.total:
        notes += (skipped.note(len(log)),)
    declared = tables[0].scan.declared
    return ReadResult(
        log, source, format_name, columns, guessed, items_beside, notes, skipped, context,
        {n: declared[kept[CONTEXT + n]] for n in options.context if kept[CONTEXT + n] in declared},
    )  # fmt: skip


def _with_seconds(
    log: EventLog, source: str, column: str, options: ReadOptions
) -> tuple[EventLog, tuple[str, ...]]:
    """The log with its times in seconds, whose unit only the whole log shows, and a note."""
    if options.time_unit is not None or options.time_format is not None:
        return log, ()
    seconds, looks = in_seconds(log.times, f"{source}, column {column!r},")
    if looks is None:
        return log, ()
    first, last = date_text(seconds.min()), date_text(seconds.max())
    note = f"The times in {column!r} were read as {looks}, from {first} to {last}."
    return replace(log, times=seconds), (note,)


def _event_log(
    tables: Sequence[_Table], columns: dict[str, str], options: ReadOptions, skipped: SkippedRows
) -> tuple[EventLog, pl.DataFrame]:
    """All events, and their context; the ids themselves are held for one chunk at a time."""
    ids = {role: Numbering() for role in ("user", "item", "group") if role in columns}
    chunks = [
        chunk.with_columns(**{role: ids[role].number(chunk[role]) for role in ids})
        for table in tables
        for chunk in _chunks(table, columns, options, skipped)
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
    table: _Table, columns: dict[str, str], options: ReadOptions, skipped: SkippedRows
) -> Iterator[pl.DataFrame]:
    """The chosen columns of one file under our names and in our types."""
    names = table.schema.names()
    own = {
        role: find_column(role.partition(" ")[0], name, names, table.name)
        for role, name in columns.items()
    }
    with reading(table.name):
        for rows_before, raw in _raw_chunks(table.scan, list(own.values()), own.get("time")):
            read = partial(_converted, table, own, rows_before, options)
            if options.skip_bad_rows:
                yield skipped.convert(table.name, table.scan, raw, rows_before, read)
            else:
                yield read(raw)


def _converted(
    table: _Table, own: dict[str, str], rows_before: int, options: ReadOptions, raw: pl.DataFrame
) -> pl.DataFrame:
    read = _columns(table, raw, own, rows_before)
    return pl.DataFrame({column.role: options.convert(column) for column in read})


def _raw_chunks(
    scan: Scan, columns: Sequence[str], time: str | None
) -> Iterator[tuple[int, pl.DataFrame]]:
    """How many rows came before, and the rows.

    Where numbers are written as text, one row can change what all the others mean, so the file is
    one chunk.
    """
    once = dict.fromkeys(columns)  # one may be both a rating and kept as it is
    frame = scan.frame.select(*once, *([] if scan.unreadable is None else [scan.unreadable]))
    if scan.untyped or (time is not None and frame.collect_schema()[time] == pl.String):
        yield 0, frame.collect()
        return
    rows = frame.select(pl.len()).collect().item()
    for start in range(0, max(rows, 1), CHUNK_ROWS):
        yield start, frame.slice(start, CHUNK_ROWS).collect()


def _columns(
    table: _Table, raw: pl.DataFrame, own: dict[str, str], rows_before: int
) -> list[values.Column]:
    blank = _blank_rows(raw) if table.scan.untyped else None
    kept = raw if blank is None else raw.filter(~blank)
    return [
        values.Column(
            values=kept[name],
            role=role,
            source=table.name,
            untyped=name in table.scan.untyped,
            path=table.path,
            lines_before=table.lines_before,
            blank=blank,
            rows_before=rows_before,
        )
        for role, name in own.items()
    ]


def _blank_rows(raw: pl.DataFrame) -> pl.Series | None:
    """Rows without any value, which is how an empty line of a text file is read."""
    blank = raw.select(pl.all_horizontal(pl.all().is_null()).alias("blank"))["blank"]
    return blank if blank.any() else None


def _precision_note(table: _Table, time: str) -> tuple[str, ...]:
    if table.schema[time] != pl.Float32:
        return ()
    return (
        f"The times in {time!r} are 32-bit floats, which near today's unix seconds are a minute "
        "apart: events within a minute may be in the wrong order. Store them in 64 bits.",
    )
