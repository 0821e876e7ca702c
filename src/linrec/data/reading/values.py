"""From the values of a column to what an event needs: an id, a time or a rating in every row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import polars as pl

from linrec.files.text import count_lines
from linrec.types import InputError, argument

_UNDECODED = "\ufffd"  # the replacement for bytes that are not UTF-8
_WHOLE_FLOAT = 2.0**53  # beyond it floats cannot represent every integer
_WHOLE_TEXT = r"^(-?\d+)\.0+$"


class BadRowsError(InputError):
    """Some rows of a column cannot be used; without them the rest may be."""

    def __init__(self, sentence: str, wrong: pl.Series, reason: str) -> None:
        super().__init__(sentence)
        self.wrong = wrong  # True on each of these rows
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Column:
    """One column of one file, with what an error needs to name the row."""

    values: pl.Series
    role: str  # user, item, time or rating
    source: str
    untyped: bool = False  # text because the format has no types
    path: Path | None = None
    lines_before: int | None = None  # None where rows are not lines
    blank: pl.Series | None = None  # rows of the file that were left out as empty
    rows_before: int = 0  # rows of the file before the first of these

    def fail(self, wrong: pl.Series, trouble: str, remedy: str, reason: str) -> NoReturn:
        """Name the first row where `wrong` holds; the reason is that of all of these rows."""
        wrong = wrong.fill_null(False)
        row = int(wrong.arg_true()[0])
        sentence = f"{self.source}, {self._row(row)}, column {self.values.name!r}: {trouble}"
        raise BadRowsError(f"{sentence}; {remedy}", wrong, reason)

    def refuse(self, trouble: str) -> NoReturn:
        if self.role in ("user", "item", "time", "rating"):
            remedy = f"the {self.role}; set {argument(self.role)} to another column or convert it"
        else:
            remedy = "a number; choose another kind for this feature or convert it"
        raise InputError(
            f"{self.source}: the column {self.values.name!r} holds {trouble} and cannot be {remedy}"
        )

    def _row(self, at: int) -> str:
        """Row and line, counted from 1 as in an editor."""
        row, rows = at, len(self.values)
        if self.blank is not None:
            row, rows = int((~self.blank).arg_true()[at]), len(self.blank)
        if self.path is None or self.lines_before is None:
            return f"row {row + 1 + self.rows_before}"
        # where a quoted field spans lines, the line of a row is not known
        if count_lines(self.path) != rows + self.lines_before:
            return f"row {row + 1}"
        return f"row {row + 1} (line {row + 1 + self.lines_before})"


def ids(column: Column) -> pl.Series:
    """Int64 or String, as they are; whole floats become the integers they stand for."""
    kind = column.values.dtype
    if kind.is_float():
        values = _whole(column)
    elif kind.is_integer():
        values = _int64_or_text(column.values)
    elif kind == pl.String or isinstance(kind, pl.Categorical | pl.Enum):
        values = _text(column)
    else:
        column.refuse(f"values of type {kind}")
    if values.null_count():
        column.fail(
            values.is_null(),
            f"the {column.role} id is missing",
            f"give it an id or remove the row, or set {argument(column.role)} to another column",
            f"no {column.role} id",
        )
    return values


def numbers(column: Column) -> pl.Series:
    """Float64; a number may be missing, but every value must be one."""
    kind = column.values.dtype
    if kind != pl.String and not kind.is_numeric() and kind != pl.Boolean:
        column.refuse(f"values of type {kind}")
    text = stripped(column.values) if kind == pl.String else column.values
    parsed = text.cast(pl.Float64, strict=False)
    broken = parsed.is_null() & text.is_not_null()
    if broken.any():
        written = str(text.filter(broken)[0])[:40]
        column.fail(
            broken,
            f"{written!r} is not a number",
            "correct it or choose another column",
            f"a {column.role} that is not a number",
        )
    return parsed.fill_nan(None)


def _whole(column: Column) -> pl.Series:
    values = column.values.cast(pl.Float64).fill_nan(None)
    broken = (values != values.floor()) | (values.abs() > _WHOLE_FLOAT)
    if broken.any():
        column.fail(
            broken,
            "an id must be a string or a whole number",
            f"convert it or set {argument(column.role)} to another column",
            f"a {column.role} id with a fraction",
        )
    return values.cast(pl.Int64)


def _int64_or_text(values: pl.Series) -> pl.Series:
    numbers = values.cast(pl.Int64, strict=False)
    return numbers if numbers.null_count() == values.null_count() else values.cast(pl.String)


def _text(column: Column) -> pl.Series:
    """Ids written as text: integers where the format has no types and all of them are integers."""
    text = (
        stripped(column.values.cast(pl.String)) if column.untyped else column.values.cast(pl.String)
    )
    text = text.set(text == "", None)
    undecoded = text.str.contains(_UNDECODED, literal=True)
    if undecoded.any():
        trouble = f"the {column.role} id is not UTF-8"
        column.fail(undecoded, trouble, "save the file as UTF-8", trouble)
    if not column.untyped:
        return text
    first = text.drop_nulls().head(1)
    if first.str.contains(_WHOLE_TEXT).any():
        # programs that store missing integers as floats write 1.0, 2.0, ...
        return _integers(text.str.replace(_WHOLE_TEXT, "$1"), text)
    return _integers(text, text)


def _integers(written: pl.Series, otherwise: pl.Series) -> pl.Series:
    """The text as integers if all of it is; 007 and +7 are names, not numbers."""
    first = written.drop_nulls().head(1)
    if first.cast(pl.Int64, strict=False).null_count():  # most columns of names stop here
        return otherwise
    parsed = written.cast(pl.Int64, strict=False)
    same = parsed.cast(pl.String) == written
    return parsed if same.fill_null(written.is_null()).all() else otherwise


def stripped(values: pl.Series) -> pl.Series:
    """Text without blanks around it, null where nothing is left."""
    text = values.str.strip_chars()
    return text.set(text == "", None)
