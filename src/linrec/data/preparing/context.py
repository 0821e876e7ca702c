"""Context columns: what each event says besides user, item and time, as a dataset keeps it."""

from __future__ import annotations

import polars as pl

from linrec.data.dataset.context import ContextColumn, ContextKind
from linrec.data.preparing.feature_kinds import convert, infer_kind
from linrec.data.reading.events import ReadResult
from linrec.data.reading.values import Column
from linrec.types import InputError, argument


def context_columns(
    read: ReadResult, kinds: dict[str, ContextKind | None]
) -> tuple[ContextColumn, ...]:
    """Of all events that were read; kinds that are not given are guessed as those of items."""
    return tuple(_column(read, name, kind) for name, kind in kinds.items())


def _column(read: ReadResult, name: str, given: ContextKind | None) -> ContextColumn:
    values = read.context[name]
    kind = kind_of(values, given, read.context_declared.get(name), read.source)
    converted = convert(Column(values, name, read.source), kind)
    return ContextColumn.of(name, kind, converted)


def kind_of(
    values: pl.Series, given: ContextKind | None, declared: str | None, source: str
) -> ContextKind:
    """values: of all events, or each of them once."""
    guessed, name = infer_kind(values, given, declared), values.name
    if guessed is None and values.null_count() == len(values):
        raise InputError(
            f"{source}: the column {name!r} holds no value; leave it out of {argument('context')}"
        )
    if isinstance(values.dtype, pl.List | pl.Struct | pl.Array):
        raise InputError(
            f"{source}: the column {name!r} holds values of type {values.dtype}, and a "
            f"context is one category or number for each event; leave it out of "
            f"{argument('context')}"
        )
    # one event has one value: what would be tags or a text of an item is a category here
    return "numeric" if guessed == "numeric" else "categorical"
