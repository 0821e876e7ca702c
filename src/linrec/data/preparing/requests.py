"""Whom to recommend for, as a caller says it: users, histories, or a frame of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import polars as pl

from linrec.data.dataset.context import given_codes
from linrec.data.dataset.histories import Histories, of_items, of_users
from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.item_features import Field
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.moments import split_events
from linrec.data.preparing.prepare import prepare
from linrec.types import InputError

if TYPE_CHECKING:
    import pandas as pd

    Who = Sequence[Any] | pl.Series | pl.DataFrame | pd.DataFrame | None


def histories_of(
    who: Who,
    catalogue: IdMap,
    data: Callable[[], SequenceStore],
    context: Sequence[Field] = (),
) -> Histories:
    """data: opens the dataset, if users are named by their ids. context: what the model reads."""
    if _is_frame(who):
        return of_users(None, _prepared(who, context), catalogue)
    if who is None or (isinstance(who, pl.Series) and not who.dtype.is_nested()):
        return of_users(who, data(), catalogue)
    if not _is_list(who):
        raise InputError(f"give users as a list of ids, not as the single value {who!r}")
    rows = list(who)
    histories = [_is_list(row) for row in rows]
    if any(histories) and not all(histories):
        raise InputError("give either ids of users or lists of items, not some of each")
    if not any(histories):
        return of_users(rows, data(), catalogue)
    given = split_events(rows)
    codes = None
    if given.context is not None and context:
        codes = [given_codes(context, event) for row in given.context for event in row]
    return of_items(given.items, catalogue, given.times, codes)


def _prepared(frame: pl.DataFrame | pl.LazyFrame, context: Sequence[Field]) -> SequenceStore:
    """With those of the fields that the frame has; the others are missing."""
    lazy = isinstance(frame, pl.LazyFrame)
    columns = set(frame.collect_schema().names() if lazy else frame.columns)
    kinds = {"numeric": "numeric"}
    wanted = tuple(
        f"{field.name}={kinds.get(field.kind, 'categorical')}"
        for field in context
        if field.name in columns
    )
    return prepare(frame, times="real", context=wanted).read_by(context)


def _is_frame(value: object) -> TypeGuard[pl.DataFrame | pl.LazyFrame]:
    """pandas is recognised without an import; its Series has no columns."""
    return isinstance(value, pl.DataFrame | pl.LazyFrame) or hasattr(value, "columns")


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | dict)
