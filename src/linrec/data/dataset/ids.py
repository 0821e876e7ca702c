"""The caller's own ids and their indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.types import InputError

UNKNOWN = -1


@dataclass(frozen=True, eq=False)
class IdMap:
    """Position p has the index p + `first`: users count from 0, items from 1 (0 is PAD)."""

    ids: pl.Series  # String or Int64, each once
    first: int

    def __len__(self) -> int:
        return len(self.ids)

    def index_of(self, ids: Sequence[Any] | NDArray[Any] | pl.Series) -> NDArray[np.int64]:
        """The index of each id, -1 where it is unknown.

        "1" matches 1 and 1 matches "1", because a command line has only strings.
        """
        wanted = _in_type(ids, self.ids.dtype)
        if not len(self.ids) or not len(wanted):
            return np.full(len(wanted), UNKNOWN, np.int64)
        ordered, positions = self._sorted
        filled = wanted.fill_null(ordered[0])
        at = np.minimum(np.asarray(ordered.search_sorted(filled)), len(ordered) - 1)
        known = (ordered.gather(at) == filled) & wanted.is_not_null()
        return np.where(known.to_numpy(), positions[at] + self.first, UNKNOWN).astype(np.int64)

    def ids_of(self, indices: NDArray[Any] | Sequence[int]) -> pl.Series:
        """The ids of indices from `index_of`."""
        positions = np.asarray(indices, dtype=np.int64) - self.first
        if len(positions) and (positions.min() < 0 or positions.max() >= len(self.ids)):
            last = self.first + len(self.ids) - 1
            raise InputError(
                f"an index is outside {self.first} to {last}, the range of this id map"
            )
        return self.ids.gather(positions)

    @cached_property
    def _sorted(self) -> tuple[pl.Series, NDArray[np.int64]]:
        order = self.ids.arg_sort()
        return self.ids.gather(order), order.to_numpy().astype(np.int64)


def check_ids(ids: pl.Series, source: str, remedy: str) -> None:
    """Refuse ids that `prepare` would not have written."""
    if ids.dtype != pl.String and not ids.dtype.is_integer():
        trouble = f"must hold text or whole numbers, not {ids.dtype}"
    elif ids.has_nulls():
        trouble = "has an empty id"
    elif ids.n_unique() < len(ids):
        trouble = "has an id twice"
    else:
        return
    raise InputError(f"{source}: the column {ids.name!r} {trouble}; it is damaged, {remedy}")


def _in_type(ids: Sequence[Any] | NDArray[Any] | pl.Series, kind: pl.DataType) -> pl.Series:
    """Ids cast to the type of the map; what cannot be cast becomes null."""
    if isinstance(ids, str | bytes):
        raise InputError(f"ids must come as a list, not as the single value {ids!r}")
    if isinstance(ids, pl.Series):
        wanted = ids
    else:
        values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        same = all(type(value) is int for value in values)
        wanted = pl.Series(values, dtype=pl.Int64) if same else pl.Series(map(_text, values))
    if wanted.dtype.is_nested() or wanted.dtype == pl.Null:
        return pl.Series([None] * len(wanted), dtype=kind)
    if wanted.dtype.is_float():
        whole = wanted.is_finite() & (wanted == wanted.floor())
        wanted = wanted.set(~whole, None)
        wanted = wanted.cast(pl.Int64, strict=False)
    return wanted.cast(kind, strict=False)


def _text(value: object) -> str | None:
    """One spelling for ids of mixed types; a whole float is the integer it stands for."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
