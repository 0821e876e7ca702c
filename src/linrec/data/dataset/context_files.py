"""The context columns of a dataset as files: an array each, and the values of categories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from linrec.data.dataset.context import NO_VALUE, ContextColumn, ContextKind
from linrec.files.expansion import check_parquet


class ContextEntry(BaseModel):
    """A column in dataset.json; its files are numbered in the order of the entries."""

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: ContextKind


def array_name(place: int) -> str:
    """The name of a column's values, without its ending."""
    return f"context-{place}"


def file_names(entries: Sequence[ContextEntry]) -> list[str]:
    arrays = [f"{array_name(place)}.npy" for place in range(len(entries))]
    names = [
        f"context-{place}.parquet"
        for place, entry in enumerate(entries)
        if entry.kind == "categorical"
    ]
    return arrays + names


def write_categories(folder: Path, columns: Sequence[ContextColumn]) -> None:
    """What the values of the columns mean; the values are written with the events."""
    for place, column in enumerate(columns):
        if column.categories is not None:
            table = pl.DataFrame({"value": column.categories})
            table.write_parquet(folder / f"context-{place}.parquet")


def read_columns(
    folder: Path,
    entries: Sequence[ContextEntry],
    load: Callable[[Path, type[np.generic]], NDArray[Any]],
) -> tuple[ContextColumn, ...]:
    """load: maps an array of a type into memory."""
    return tuple(_read(folder, place, entry, load) for place, entry in enumerate(entries))


def _read(
    folder: Path,
    place: int,
    entry: ContextEntry,
    load: Callable[[Path, type[np.generic]], NDArray[Any]],
) -> ContextColumn:
    array = folder / f"context-{place}.npy"
    if entry.kind == "numeric":
        return ContextColumn(entry.name, entry.kind, load(array, np.float64))
    table = folder / f"context-{place}.parquet"
    content = table.read_bytes()
    check_parquet(str(table), content)
    categories = pl.read_parquet(content)["value"].cast(pl.String).alias(entry.name)
    return ContextColumn(entry.name, entry.kind, load(array, np.int32), categories)


def trouble_of(columns: Sequence[ContextColumn], events: int) -> str | None:
    """What no column of a dataset has."""
    for column in columns:
        values = column.values
        if len(values) != events:
            return "its arrays differ in length"
        if column.categories is not None and events:
            within = values.min() >= NO_VALUE and values.max() < len(column.categories)
            if not within or column.categories.has_nulls():
                return f"its context column {column.name!r} holds values that have no name"
    return None
