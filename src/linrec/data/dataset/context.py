"""What is known of each event besides item and time: its type, a rating, a price.

A dataset keeps the columns as they are: categories as indices into their values, numbers as
numbers. A model reads them as codes in the vocabulary of its own run, those of item features:
0 nothing, 1 missing, 2 unknown, values from 3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.dataset.chunked import update
from linrec.data.dataset.feature import Feature
from linrec.data.dataset.item_features import MISSING, Field, learn_field
from linrec.types import InputError, argument

ContextKind = Literal["categorical", "numeric"]
NO_VALUE = -1

Codes = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class ContextColumn:
    """One column of all events."""

    name: str
    kind: ContextKind
    values: NDArray[np.int32] | NDArray[np.float64]  # [events]; numbers, NaN where missing, or
    categories: pl.Series | None = None  # positions in these strings, NO_VALUE where missing

    @classmethod
    def of(cls, name: str, kind: ContextKind, column: pl.Series) -> ContextColumn:
        """column: strings, or numbers; null where missing."""
        if kind == "numeric":
            return cls(name, kind, column.cast(pl.Float64).fill_null(np.nan).to_numpy().copy())
        text = column.cast(pl.String)
        return cls.of_categories(name, text, text.drop_nulls().unique().sort().alias(name))

    @classmethod
    def of_categories(cls, name: str, text: pl.Series, categories: pl.Series) -> ContextColumn:
        return cls(name, "categorical", _positions(text, categories), categories)

    @property
    def whole(self) -> NDArray[Any]:
        """The values in one array, which of a dataset in shards is a copy."""
        return np.asarray(self.values)

    @property
    def described(self) -> str:
        if self.categories is None:
            return self.kind
        return f"{self.kind}, {len(self.categories):,} values"

    def take(self, rows: NDArray[np.generic] | slice) -> ContextColumn:
        return replace(self, values=self.values[rows])

    def given(self) -> NDArray[np.bool_]:
        """[events], whether each has a value."""
        missing = np.isnan(self.whole) if self.categories is None else self.whole < 0
        return np.asarray(~missing, np.bool_)

    def texts(self) -> pl.Series:
        """The column as a frame has it, null where missing."""
        if self.categories is None:
            return pl.Series(self.name, self.whole).fill_nan(None)
        index = pl.Series(self.name, self.whole)
        return self.categories.gather(index.set(index < 0, None))

    def codes(self, field: Field) -> Codes:
        """[events], in the vocabulary of a model."""
        if self.categories is None:
            return field.value_codes(pl.Series(self.name, self.whole))
        if field.kind == "numeric":
            texts = self.texts().cast(pl.Float64, strict=False)
            return field.value_codes(texts)
        known = field.value_codes(self.categories)
        return np.asarray(np.append(known, np.int32(MISSING))[self.whole], np.int32)

    def learn(self, rows: NDArray[np.generic] | slice) -> Field:
        """The vocabulary of some events: values that two of them have, buckets of equal size."""
        table = pl.DataFrame({self.name: self.take(rows).texts()})
        return learn_field(table, Feature(self.name, self.kind))

    def fingerprint(self) -> bytes:
        digest = hashlib.sha256(f"{self.name}\0{self.kind}\0".encode())
        for value in () if self.categories is None else self.categories:
            digest.update(f"{value}\0".encode())
        kind = "<f8" if self.categories is None else "<i4"
        update(digest, self.values, kind)
        return digest.digest()


def _positions(column: pl.Series, categories: pl.Series) -> NDArray[np.int32]:
    known = pl.DataFrame({"value": categories}).with_row_index("place")
    places = pl.DataFrame({"value": column}).join(
        known, on="value", how="left", maintain_order="left"
    )["place"]
    return places.cast(pl.Int32).fill_null(NO_VALUE).to_numpy().copy()


def chosen_columns(
    columns: Sequence[ContextColumn], names: Sequence[str], where: str
) -> tuple[ContextColumn, ...]:
    """Those of these names; `where` names the dataset in an error."""
    by_name = {column.name: column for column in columns}
    return tuple(by_name[_known(name, by_name, where)] for name in dict.fromkeys(names))


def _known(name: str, by_name: Mapping[str, ContextColumn], where: str) -> str:
    if name in by_name:
        return name
    if not by_name:
        raise InputError(
            f"{where} has no context column {name!r} nor any other; prepare it again with "
            f"{argument('context', name)}"
        )
    raise InputError(
        f"{where} has no context column {name!r}; choose from {', '.join(by_name)}, or prepare it "
        f"again with {argument('context')}"
    )


def codes_of(
    columns: Sequence[ContextColumn], fields: Sequence[Field], events: int
) -> Codes | None:
    """[events, fields]; a field that the dataset lacks is missing everywhere. None: no fields."""
    if not fields:
        return None
    by_name = {column.name: column for column in columns}
    coded = [
        by_name[field.name].codes(field)
        if field.name in by_name
        else np.full(events, MISSING, np.int32)
        for field in fields
    ]
    return np.stack(coded, axis=1)


def given_codes(fields: Sequence[Field], given: Mapping[str, object] | None) -> list[int]:
    """The codes of one event, whose context somebody gives by name."""
    given = given or {}
    return [_code(field, given.get(field.name)) for field in fields]


def _code(field: Field, value: object) -> int:
    if value is None:
        return MISSING
    if field.kind == "numeric":
        number = pl.Series([plain_text(value)]).cast(pl.Float64, strict=False)
        return int(field.value_codes(number)[0])
    # 5.0 is 5 in a column of whole numbers, and stays 5.0 beside 4.5
    known = field.value_codes(pl.Series([plain_text(value), str(value)]))
    return int(known.max())


def plain_text(value: object) -> str:
    """A value as `prepare` writes it: 5 for 5.0, true for True."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
