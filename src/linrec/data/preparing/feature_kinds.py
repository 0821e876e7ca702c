"""What a column of the items file is: a category, several of them, a number, or text to show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

import polars as pl

from linrec.data.dataset.feature import FeatureKind
from linrec.data.reading.times import times
from linrec.data.reading.values import Column, numbers

# usual names of the column with an item's name, the most specific first
_TITLES = (
    "title",
    "movietitle",
    "itemtitle",
    "producttitle",
    "booktitle",
    "tracktitle",
    "songtitle",
    "name",
    "itemname",
    "productname",
    "trackname",
    "venuename",
    "placename",
)
_TEXTS = ("description", "text", "summary", "overview", "abstract", "url", "image", "imageurl")
MAX_CODES = 50
"""Whole numbers with at most so many different values are codes of categories."""

_ID_NAME = re.compile(r"[_\W][iI][dD]$|[a-z]I[dD]$")  # brand_id, brandId

_DECLARED: dict[str, FeatureKind] = {
    "token": "categorical",
    "token_seq": "multi",
    "float": "numeric",
}


def title_column(names: Sequence[str]) -> str | None:
    """The column that names the items to a person."""
    fitting = [name for name in names if _bare(name) in _TITLES]
    return min(
        fitting, key=lambda name: (_TITLES.index(_bare(name)), name != "title"), default=None
    )


def infer_kind(values: pl.Series, given: str | None, declared: str | None) -> FeatureKind | None:
    """The given kind, else the one the header declares, else a guess from the values.

    None where the column cannot be a feature.
    """
    if given is not None:
        return cast(FeatureKind, given)
    if values.null_count() == len(values):
        return None
    if declared is not None:
        shown = declared != "float" and _is_text_name(values.name)
        return "text" if shown else _DECLARED.get(declared)
    return _by_type(values)


def convert(column: Column, kind: FeatureKind, *, spaced: bool = False) -> pl.Series:
    """A column in the type its kind is stored in; `spaced` lists are separated by spaces."""
    values = column.values
    if kind == "numeric":
        return times(column) if values.dtype.is_temporal() else numbers(column)
    if kind == "multi":
        return _lists(values, spaced)
    if isinstance(values.dtype, pl.List):
        return values.cast(pl.List(pl.String)).list.join("|")
    return as_text(values, whole=are_whole(values))


def are_whole(values: pl.Series) -> bool:
    """Whether all of them are floats that stand for integers."""
    if not values.dtype.is_float():
        return False
    return bool((values.cast(pl.Int64, strict=False).cast(pl.Float64) == values).all())


def as_text(values: pl.Series, *, whole: bool) -> pl.Series:
    """Names of categories, null where nothing is left; 1995.0 is 1995 if all are whole."""
    values = values.cast(pl.Int64, strict=False) if whole else values
    text = values.cast(pl.String).str.strip_chars()
    return text.set(text == "", None)


def _by_type(values: pl.Series) -> FeatureKind | None:
    kind = values.dtype
    if isinstance(kind, pl.List):
        # numbers with a fraction are measurements or a vector, not names of anything
        return None if kind.inner.is_nested() or kind.inner.is_float() else "multi"
    if kind == pl.Boolean or isinstance(kind, pl.Categorical | pl.Enum):
        return "categorical"
    if kind.is_float() or kind.is_decimal() or isinstance(kind, pl.Date | pl.Datetime):
        return "numeric"
    if kind.is_integer():
        numeric = values.n_unique() > MAX_CODES and not _ID_NAME.search(values.name)
        return "numeric" if numeric else "categorical"
    return _by_text(values) if kind == pl.String else None


def _by_text(values: pl.Series) -> FeatureKind:
    if _is_text_name(values.name):
        return "text"
    if _ID_NAME.search(values.name):
        return "categorical"
    text = values.drop_nulls().str.strip_chars()
    text = text.filter(text != "")
    parsed = text.cast(pl.Float64, strict=False)
    if not parsed.null_count():
        whole = bool((parsed == parsed.floor()).all())
        return "categorical" if whole and text.n_unique() <= MAX_CODES else "numeric"
    if text.str.contains("|", literal=True).any():
        return "multi"
    return "categorical" if text.n_unique() <= max(MAX_CODES, len(text) // 2) else "text"


def _lists(values: pl.Series, spaced: bool) -> pl.Series:
    if isinstance(values.dtype, pl.List):
        return values.cast(pl.List(pl.String)).list.drop_nulls()
    text = values.cast(pl.String).str.strip_chars()
    present = [mark for mark in "|;," if text.str.contains(mark, literal=True).any()]
    mark = " " if spaced else next(iter(present), "|")
    parts = text.str.split(mark).list.eval(pl.element().str.strip_chars())
    return parts.list.eval(pl.element().filter(pl.element() != ""))


def _is_text_name(name: str) -> bool:
    return _bare(name) in _TITLES or _bare(name) in _TEXTS


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
