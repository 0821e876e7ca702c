"""Rows that cannot be events: left out, counted and sampled instead of refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import polars as pl

from linrec.data.reading.formats import Scan
from linrec.data.reading.values import BadRowsError

SAMPLE_FILE = "skipped.csv"
SAMPLED = 100  # rows of each reason
MAX_TEXT = 200  # characters of each value

_ROW = "linrec: row"
_NOT_A_ROW = "not a row"


class Taken(NamedTuple):
    """Rows that were left out together."""

    reason: str
    rows: int
    sample: pl.DataFrame  # of the first of them


class SkippedRows:
    """How many rows were left out for which reason, and the first of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._taken: list[Taken] = []

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def convert(
        self,
        source: str,
        scan: Scan,
        raw: pl.DataFrame,
        rows_before: int,
        read: Callable[[pl.DataFrame], pl.DataFrame],
    ) -> pl.DataFrame:
        """What `read` makes of the rows that it does not refuse.

        Refusing is `BadRowsError`, which names all rows of one reason, so that a handful of
        attempts is enough.
        """
        rows = raw.with_row_index(_ROW, offset=rows_before + 1)
        if scan.unreadable is not None:
            text = pl.col(scan.unreadable)
            lines = rows.filter(text.is_not_null()).rename({scan.unreadable: "line"})
            self._take(source, lines.select(_ROW, "line"), _NOT_A_ROW)
            rows = rows.filter(text.is_null()).drop(scan.unreadable)
        if scan.untyped:  # an empty line of a text file is read as a row without values
            rows = rows.filter(~pl.all_horizontal(pl.exclude(_ROW).is_null()))
        return self._read(source, rows, read)

    def _read(
        self, source: str, rows: pl.DataFrame, read: Callable[[pl.DataFrame], pl.DataFrame]
    ) -> pl.DataFrame:
        try:
            return read(rows.drop(_ROW))
        except BadRowsError as error:
            self._take(source, rows.filter(error.wrong), error.reason)
            return self._read(source, rows.filter(~error.wrong), read)

    def _take(self, source: str, rows: pl.DataFrame, reason: str) -> None:
        if len(rows):
            self._add(Taken(reason, len(rows), _shown(source, rows.head(SAMPLED), reason)))

    def _add(self, taken: Taken) -> None:
        room = max(SAMPLED - self.counts[taken.reason], 0)
        self.counts[taken.reason] += taken.rows
        self._taken.append(taken._replace(sample=taken.sample.head(room)))

    def update(self, later: SkippedRows) -> None:
        """Add those of rows that follow in the log."""
        for taken in later._taken:
            self._add(taken)

    def note(self, rows_read: int) -> str:
        reasons = ", ".join(f"{why} ({count:,})" for why, count in self.counts.most_common())
        return f"{self.total:,} of {self.total + rows_read:,} rows were skipped: {reasons}."

    def sample(self) -> bytes:
        """The first rows of each reason as CSV."""
        samples = [taken.sample for taken in self._taken if len(taken.sample)]
        return pl.concat(samples, how="diagonal").write_csv().encode()


def _shown(source: str, rows: pl.DataFrame, reason: str) -> pl.DataFrame:
    head = [pl.lit(source).alias("file"), pl.col(_ROW).alias("row"), pl.lit(reason).alias("reason")]
    values = [_text(rows[name]) for name in rows.columns if name != _ROW]
    return rows.select(*head).hstack(values)


def _text(values: pl.Series) -> pl.Series:
    if values.dtype.is_nested():
        return pl.Series(values.name, [str(value)[:MAX_TEXT] for value in values], pl.String)
    return values.cast(pl.String, strict=False).str.slice(0, MAX_TEXT)
