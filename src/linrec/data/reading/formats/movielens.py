"""MovieLens 1M and 10M as GroupLens ships them: fields between `::`, latin-1, no header."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from linrec.data.reading.formats.format import Format, Scan, beside, scan_text
from linrec.files.text import first_line, open_bytes
from linrec.types import InputError, argument

RATINGS = ("user_id", "movie_id", "rating", "timestamp")
MOVIES = ("movie_id", "title", "genres")
_ABSENT = "\x01"  # a separator that no line has, so that each line is one column


def scan_movielens(path: Path) -> Scan:
    """Tell ratings from movies by the number of fields."""
    fields = first_line(path).count("::") + 1
    if fields == len(RATINGS):
        return Scan(
            _fields(scan_text(path, _ABSENT, header=False).frame, RATINGS),
            untyped=frozenset(RATINGS),
        )
    if fields == len(MOVIES):
        return Scan(describe(_fields(latin_lines(path), MOVIES)), untyped=frozenset(("movie_id",)))
    raise InputError(
        f"{path}: the first line has {fields} fields between `::`, where ratings have "
        f"{len(RATINGS)} and movies {len(MOVIES)}; set {argument('format')} if it "
        "is another kind of file"
    )


def _fields(lines: pl.LazyFrame, names: tuple[str, ...]) -> pl.LazyFrame:
    """Split each line; Polars separates columns by one character only."""
    parts = pl.all().str.split_exact("::", len(names) - 1).struct.rename_fields(names)
    return lines.select(parts.alias("fields")).unnest("fields")


def latin_lines(path: Path) -> pl.LazyFrame:
    """Lines in the encoding of the titles; only the movies, a small file, need it."""
    with open_bytes(path) as file:
        lines = file.read().decode("latin-1").replace("\r\n", "\n").removesuffix("\n").split("\n")
    return pl.LazyFrame({"line": lines}, schema={"line": pl.String})


def describe(movies: pl.LazyFrame) -> pl.LazyFrame:
    """Take the year out of "Name (1995)" and the genres apart."""
    title = pl.col("title")
    return movies.select(
        "movie_id",
        title.str.replace(r"\s*\(\d{4}\)\s*$", "").alias("title"),
        title.str.extract(r"\((\d{4})\)\s*$").cast(pl.Float64).alias("year"),
        pl.col("genres").str.split("|").alias("genres"),
    )


MOVIELENS = Format(
    "movielens",
    (".dat",),
    scan_movielens,
    lambda line: "::" in line,
    lines_before=0,
    in_folder="ratings*.dat",
    items_beside=lambda path: beside(path, "movies.dat"),
)
