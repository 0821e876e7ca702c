"""MovieLens 100K as GroupLens ships it: u.data between tabs, u.item between bars, no headers."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from linrec.data.reading.formats.format import Format, Scan, beside, scan_text
from linrec.data.reading.formats.movielens import RATINGS, describe, latin_lines
from linrec.files.text import first_line
from linrec.types import InputError, argument

# the columns of u.item from the sixth on, 1 where the film is of that genre
GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime"),
    *("Documentary", "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery"),
    *("Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
_BEFORE_GENRES = 5  # id, title, two dates, address
_RATING = re.compile(r"\d+\t\d+\t[1-5]\t[\d.]+")


def scan_movielens_100k(path: Path) -> Scan:
    """Tell ratings from films by what separates the fields."""
    line = first_line(path)
    if line.count("\t") + 1 == len(RATINGS):
        scan = scan_text(path, "\t", header=False)
        names = dict(zip(scan.frame.collect_schema().names(), RATINGS, strict=True))
        return Scan(scan.frame.rename(names), untyped=frozenset(RATINGS))
    if line.count("|") + 1 == _BEFORE_GENRES + len(GENRES):
        return Scan(describe(_films(latin_lines(path))), untyped=frozenset(("movie_id",)))
    raise InputError(
        f"{path}: the first line has neither the {len(RATINGS)} fields between tabs of u.data nor "
        f"the {_BEFORE_GENRES + len(GENRES)} between bars of u.item; set {argument('format')} if "
        "it is another kind of file"
    )


def _films(lines: pl.LazyFrame) -> pl.LazyFrame:
    fields = pl.col("line").str.split("|")

    def field(at: int) -> pl.Expr:
        return fields.list.get(at, null_on_oob=True)

    genres = [
        pl.when(field(at) == "1").then(pl.lit(name))
        for at, name in enumerate(GENRES, start=_BEFORE_GENRES)
    ]
    together = pl.concat_str(genres, separator="|", ignore_nulls=True)
    return lines.select(
        field(0).alias("movie_id"),
        field(1).alias("title"),
        pl.when(together != "").then(together).alias("genres"),
    )


MOVIELENS_100K = Format(
    "movielens-100k",
    (),
    scan_movielens_100k,
    lambda line: bool(_RATING.fullmatch(line)),
    lines_before=0,
    names=("u.data", "u.item"),
    in_folder="u.data",
    items_beside=lambda path: beside(path, "u.item"),
)
