"""Item vectors that a user has, of text or images: read, checked, in the order of the catalogue."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray

from linrec.data.dataset.ids import IdMap
from linrec.data.preparing.features import own_id_column
from linrec.data.preparing.options import Frame
from linrec.data.reading.events import as_polars
from linrec.data.reading.values import Column, ids
from linrec.files.copies import here
from linrec.files.expansion import check_expanded, check_file
from linrec.files.guard import reading
from linrec.files.remote import is_file, place
from linrec.types import InputError

FloatArray: TypeAlias = NDArray[np.float32]
GivenVectors: TypeAlias = "str | Path | Frame | Mapping[Any, Any] | tuple[Any, Any]"

ARRAYS = ("ids", "vectors")  # in a file .npz
LIMIT = 1e18  # whose square still is a float32


@dataclass(frozen=True, slots=True)
class ReadVectors:
    """Vectors with the ids of their items."""

    ids: pl.Series
    values: FloatArray  # [items, width]
    source: str


@dataclass(frozen=True, slots=True)
class PlacedVectors:
    """A catalogue in which every item with a vector has an index."""

    catalogue: IdMap  # the items of the events first, as they were
    table: FloatArray  # [n_items + 1, width], zeros for PAD and for items without a vector
    source: str
    without_events: int
    without_vector: int

    @property
    def notes(self) -> list[str]:
        notes = []
        if self.without_events:
            notes.append(
                f"{self.without_events:,} items of {self.source} have no events: models that read "
                "item vectors can recommend them, others do not."
            )
        if self.without_vector:
            notes.append(
                f"{self.without_vector:,} of {len(self.catalogue):,} items have no vector in "
                f"{self.source}, or one of zeros, which is none."
            )
        return notes


def place_vectors(read: ReadVectors, catalogue: IdMap) -> PlacedVectors:
    """Number the items: those of the events keep their index, and those without events follow."""
    index = catalogue.index_of(read.ids)
    if not (index > 0).any():
        raise InputError(
            f"no item of the events has a vector in {read.source} (the first id there is "
            f"{read.ids[0]!r}, in the events {catalogue.ids[0]!r}); give both the same ids"
        )
    new = index < 0
    added = read.ids.filter(pl.Series(new)).cast(catalogue.ids.dtype, strict=False)
    if added.null_count():
        wrong = read.ids.filter(pl.Series(new)).filter(added.is_null())[0]
        raise InputError(
            f"{read.source}: {wrong!r} cannot be an item where the items of the events are "
            "whole numbers; correct it or leave it out"
        )
    if added.n_unique() < len(added):  # 01 and 1 are one number
        repeated = added.filter(added.is_duplicated())[0]
        raise InputError(f"{read.source} has more than one vector for {repeated!r}; keep one")
    known = len(catalogue)
    index[new] = known + 1 + np.arange(int(new.sum()))
    if len(np.unique(index)) < len(index):  # "1" and 1 are one item
        raise _twice(read, index)
    catalogue = IdMap(pl.concat([catalogue.ids, added.rename(catalogue.ids.name)]), first=1)
    table = np.zeros((len(catalogue) + 1, read.values.shape[1]), np.float32)
    table[index] = read.values
    return PlacedVectors(
        catalogue, table, read.source, int(new.sum()), int((~table[1:].any(1)).sum())
    )


def read_vectors(given: GivenVectors, id_column: str, max_expansion: int) -> ReadVectors:
    """id_column: the name of the item column in the events."""
    if isinstance(given, str | Path):
        return _checked(*_read_file(place(given), id_column, max_expansion), str(place(given)))
    source = "item_vectors"
    with reading(source, "give each item one row of numbers"):
        if isinstance(given, Mapping):
            return _checked(_id_series(list(given)), _stacked(list(given.values())), source)
        if isinstance(given, tuple):
            if len(given) != 2:
                raise InputError(f"{source} has {len(given)} arrays; give a pair (ids, vectors)")
            return _checked(_id_series(given[0]), np.asarray(given[1]), source)
        if isinstance(given, np.ndarray | list | int | float):
            raise InputError(
                f"{source} of the type {type(given).__name__} does not say whose vector each row "
                "is; give a pair (ids, vectors), a dict by item id, a frame or a file"
            )
        return _checked(*_of_frame(as_polars(given), id_column, source), source)


def _read_file(path: Path, id_column: str, max_expansion: int) -> tuple[pl.Series, NDArray[Any]]:
    suffix = path.suffix.lower()
    if suffix not in (".parquet", ".npy", ".npz"):
        raise InputError(
            f"{path} is not a file of item vectors; give .parquet, .npz with the arrays ids and "
            f"vectors, or .npy with the ids in {path.stem}.ids.txt"
        )
    with reading(str(path)), here([path]) as (at,):
        if suffix == ".parquet":
            check_file(at, max_expansion, path)
            return _of_frame(pl.read_parquet(at), id_column, str(path))
        if suffix == ".npz":
            return _of_npz(path, at, max_expansion)
        with at.open("rb") as file:
            # what np.load does not know it takes for an object to be run, and proposes to
            if file.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
                raise InputError(f"{path} is not a file that numpy.save has made; save it again")
        vectors = np.load(at, allow_pickle=False)
    beside = path.with_name(f"{path.stem}.ids.txt")
    if not is_file(beside):
        raise InputError(f"{path} needs the ids of its rows in {beside}, one per line")
    with reading(str(beside)), here([beside]) as (at,):
        lines = at.read_text(encoding="utf-8").splitlines()
    return pl.Series("item", lines, dtype=pl.String), vectors


def _of_npz(path: Path, at: Path, max_expansion: int) -> tuple[pl.Series, NDArray[Any]]:
    """at: where the file is that `path` names."""
    with at.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise InputError(f"{path} is not a file that numpy.savez has made; save it again")
        expanded = sum(part.file_size for part in zipfile.ZipFile(file).infolist())
    check_expanded(str(path), expanded, at.stat().st_size, max_expansion)
    with np.load(at, allow_pickle=False) as arrays:
        missing = [name for name in ARRAYS if name not in arrays]
        if missing:
            raise InputError(f"{path} has no array {missing[0]!r}; it needs ids and vectors")
        return _id_series(arrays["ids"]), arrays["vectors"]


def _of_frame(frame: pl.DataFrame, id_column: str, source: str) -> tuple[pl.Series, NDArray[Any]]:
    """An id column beside one column of lists, or beside columns of numbers."""
    own = own_id_column(frame.columns, id_column, source)
    values = frame.drop(own)
    lists = [name for name in values.columns if values[name].dtype.is_nested()]
    floats = [name for name in values.columns if values[name].dtype.is_float()]
    names = ids(Column(frame[own], "item", source))
    if len(lists) == 1:
        return names, _of_lists(values[lists[0]], source)
    if lists or not floats:
        found = f"{len(lists)} columns of lists" if lists else "no column of lists or of floats"
        raise InputError(
            f"{source} has {found} beside {own!r}; give one column of lists, or one column of "
            "floats for each component"
        )
    return names, values.select(floats).cast(pl.Float32).fill_null(np.nan).to_numpy()


def _of_lists(column: pl.Series, source: str) -> NDArray[Any]:
    inner = getattr(column.dtype, "inner", None)  # a struct has none
    if inner is None or not inner.is_numeric():
        raise InputError(
            f"{source}: the column {column.name!r} holds {column.dtype} and no lists of numbers; "
            "give each item one list of numbers"
        )
    lists = column.cast(pl.List(pl.Float32))
    widths = lists.list.len().fill_null(0)
    if widths.n_unique() > 1:
        usual = widths.mode()[0]
        row = int((widths != usual).arg_true()[0])
        raise InputError(
            f"{source}, row {row + 1}: the vector has {widths[row]} numbers and most have {usual}; "
            "give all items vectors of one width"
        )
    width = int(widths[0]) if len(widths) else 0
    return lists.explode().fill_null(np.nan).to_numpy().reshape(len(column), width)


def _stacked(rows: list[Any]) -> NDArray[Any]:
    arrays = [np.asarray(row, np.float32).ravel() for row in rows]
    widths = {len(row) for row in arrays}
    if len(widths) > 1:
        raise InputError(
            f"item_vectors has vectors of {min(widths)} to {max(widths)} numbers; give all items "
            "vectors of one width"
        )
    return np.stack(arrays) if arrays else np.empty((0, 0), np.float32)


def _id_series(given: Any) -> pl.Series:
    values = np.asarray(given)
    if values.ndim != 1 or values.dtype.kind not in "iuUO":
        raise InputError(
            f"the ids of the item vectors must be one row of text or whole numbers, not "
            f"{values.dtype} of shape {list(values.shape)}"
        )
    if values.dtype.kind == "O":  # mixed types, or strings of another library
        return pl.Series("item", [str(value) for value in values.tolist()], dtype=pl.String)
    return pl.Series("item", values.tolist())


def _checked(names: pl.Series, values: NDArray[Any], source: str) -> ReadVectors:
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise InputError(
            f"the vectors of {source} must be numbers of shape [items, width], not {values.dtype} "
            f"of shape {list(values.shape)}"
        )
    if len(names) != len(values):
        raise InputError(f"{source} has {len(names)} ids for {len(values)} vectors; match them")
    if not values.size:
        raise InputError(f"{source} holds no vectors; give at least one, with at least one number")
    with np.errstate(invalid="ignore", over="ignore"):
        plain = np.ascontiguousarray(values, np.float32)
        wrong = ~(np.abs(plain) < LIMIT).all(1)
    if wrong.any():
        raise InputError(
            f"{source}: the vector of {names[int(wrong.argmax())]!r} holds a value that is "
            f"missing, not finite or beyond {LIMIT:g}; correct it or leave the item out"
        )
    if names.n_unique() < len(names):
        repeated = names.filter(names.is_duplicated())[0]
        raise InputError(f"{source} has more than one vector for {repeated!r}; keep one of them")
    return ReadVectors(names, plain, source)


def _twice(read: ReadVectors, index: NDArray[np.int64]) -> InputError:
    seen, counts = np.unique(index, return_counts=True)
    first = int((index == seen[counts > 1][0]).argmax())
    return InputError(
        f"{read.source} has more than one vector for {read.ids[first]!r}; keep one of them"
    )
