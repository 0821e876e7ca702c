"""One file at a time, some rows at a time: chosen columns under our names and in our types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from linrec.data.reading import values
from linrec.data.reading.bad_rows import SkippedRows
from linrec.data.reading.columns import find_column
from linrec.data.reading.formats import Format, Scan, with_partitions
from linrec.data.reading.times import times
from linrec.files.expansion import MAX_EXPANSION
from linrec.files.guard import reading
from linrec.types import InputError, argument

CHUNK_ROWS = 1 << 21
_OF_POLARS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)

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
class Table:
    """One file or frame, opened but not read."""

    scan: Scan
    name: str
    path: Path | None = None
    lines_before: int | None = None
    form: Format | None = None  # that names lines which are not rows; None if these are left out

    @property
    def schema(self) -> pl.Schema:
        with self.reading():
            return self.scan.frame.collect_schema()

    def own(self, columns: dict[str, str]) -> dict[str, str]:
        """Roles with the names of their columns as this file has them."""
        names = self.schema.names()
        return {
            role: find_column(role.partition(" ")[0], name, names, self.name)
            for role, name in columns.items()
        }

    def reading(self) -> AbstractContextManager[None]:
        """Whatever goes wrong meanwhile is one sentence about this file."""
        return _reading(self.name, self.path, self.form)


@contextmanager
def _reading(name: str, path: Path | None, form: Format | None) -> Iterator[None]:
    """As `reading`, and where a line is at fault the sentence names it."""
    try:
        with reading(name):
            yield
    except InputError as error:
        if path is None or form is None or not isinstance(error.__cause__, _OF_POLARS):
            raise
        with reading(name):
            fault = form.fault and form.fault(path)
        if not fault:
            raise
        remedy = f", or leave such rows out with {argument('skip_bad_rows')}"
        raise InputError(
            f"{name}, {fault}; correct it{remedy if form.scan_readable else ''}"
        ) from error.__cause__


@dataclass(frozen=True, slots=True)
class Rows:
    """A stretch of one file."""

    start: int = 0
    count: int | None = None  # None: all of the file at once


def open_table(path: Path, form: Format, options: ReadOptions, at: Path | None = None) -> Table:
    """at: where the file is, if `path`, which names it, is relative to another folder."""
    there = at or path
    strict = None if options.skip_bad_rows and form.scan_readable else form
    with _reading(str(path), there, strict):
        named = {getattr(options, role) for role in ROLES} | set(options.context)
        scan = with_partitions(_opened(there, path, form, options), path, named)
        return Table(scan, str(path), there, form.lines_before, strict)


def _opened(there: Path, path: Path, form: Format, options: ReadOptions) -> Scan:
    try:
        return _scan(there, form, options)
    except InputError as error:  # of the file under the name that the caller knows
        raise InputError(str(error).replace(str(there), str(path))) from error


def stretches(table: Table, columns: dict[str, str], chunk_rows: int | None = None) -> list[Rows]:
    """How a file is divided to be read.

    Where numbers are written as text, one row can change what all the others mean, so the file is
    read at once.
    """
    own = table.own(columns)
    chunk_rows = chunk_rows or CHUNK_ROWS
    with table.reading():
        time, schema = own.get("time"), table.schema
        if table.scan.untyped or (time is not None and schema[time] == pl.String):
            return [Rows()]
        rows = table.scan.frame.select(pl.len()).collect().item()
        starts = range(0, max(rows, 1), chunk_rows)
        return [Rows(start, min(chunk_rows, rows - start)) for start in starts]


def read_rows(
    table: Table,
    columns: dict[str, str],
    options: ReadOptions,
    skipped: SkippedRows,
    rows: Rows,
) -> pl.DataFrame:
    """The chosen columns of these rows under our names and in our types."""
    own = table.own(columns)
    with table.reading():
        raw = _raw(table.scan, list(own.values()), rows)
        read = partial(_converted, table, own, rows.start, options)
        if options.skip_bad_rows:
            return skipped.convert(table.name, table.scan, raw, rows.start, read)
        return read(raw)


def _raw(scan: Scan, columns: Sequence[str], rows: Rows) -> pl.DataFrame:
    once = dict.fromkeys(columns)  # one may be both a rating and kept as it is
    frame = scan.frame.select(*once, *([] if scan.unreadable is None else [scan.unreadable]))
    return (frame if rows.count is None else frame.slice(rows.start, rows.count)).collect()


def _converted(
    table: Table, own: dict[str, str], rows_before: int, options: ReadOptions, raw: pl.DataFrame
) -> pl.DataFrame:
    read = _columns(table, raw, own, rows_before)
    return pl.DataFrame({column.role: options.convert(column) for column in read})


def _scan(path: Path, form: Format, options: ReadOptions) -> Scan:
    """With lines that are not rows told from the others, if they are to be left out."""
    if not options.skip_bad_rows or form.scan_readable is None:
        return form.scan(path)
    try:
        scan = form.scan(path)
        scan.frame.select(pl.all().null_count()).collect()  # one such line fails it all
        return scan
    except _OF_POLARS:
        return form.scan_readable(path)


def _columns(
    table: Table, raw: pl.DataFrame, own: dict[str, str], rows_before: int
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
