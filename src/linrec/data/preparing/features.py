"""Item features: read from a file or a frame, in the order of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.dataset.feature import Feature
from linrec.data.dataset.ids import IdMap
from linrec.data.preparing.feature_kinds import convert, infer_kind, title_column
from linrec.data.preparing.options import Frame, PrepareOptions
from linrec.data.reading.columns import choose_columns
from linrec.data.reading.events import as_polars
from linrec.data.reading.formats import Scan, find_files
from linrec.data.reading.values import Column, ids
from linrec.files.copies import here
from linrec.files.expansion import check_file
from linrec.files.guard import reading
from linrec.files.remote import Address
from linrec.types import InputError, argument

ITEM, TITLE = "item", "title"
RESERVED = {ITEM, "events"}  # a run's item table has the ids and their counts under these names


@dataclass(frozen=True, slots=True)
class ItemTable:
    """The catalogue with the features of its items, null where the source lacks them."""

    table: pl.DataFrame  # one row per item, in the order of the catalogue
    features: tuple[Feature, ...] = ()
    missing: int | None = None  # items the source lacks; None without a source
    source: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _ItemSource:
    scan: Scan
    raw: pl.DataFrame
    name: str
    path: Path | None = None
    lines_before: int | None = None

    def column(self, name: str, role: str) -> Column:
        untyped = name in self.scan.untyped
        return Column(self.raw[name], role, self.name, untyped, self.path, self.lines_before)


def item_table(
    catalogue: IdMap, given: str | Path | Frame | None, id_column: str, options: PrepareOptions
) -> ItemTable:
    """Look up each item of the catalogue in what was given about items."""
    plain = ItemTable(pl.DataFrame({ITEM: catalogue.ids}))
    kinds = options.feature_kinds
    if given is None:
        if kinds:
            raise InputError(
                f"the feature {next(iter(kinds))!r} has no items file; set {argument('items')}"
            )
        return plain
    source = _open(given, options.max_expansion)
    with reading(source.name):
        own_ids = own_id_column(source.raw.columns, id_column, source.name)
        index = catalogue.index_of(ids(source.column(own_ids, ITEM)))
        rows, repeated = _row_of_each(index, len(catalogue))
        columns, features, notes = _features(source, own_ids, kinds)
        table = plain.table.hstack([_reorder(values, rows) for values in columns])
    missing = int((rows < 0).sum())
    notes += _row_notes(source.name, missing, repeated, len(catalogue))
    return ItemTable(table, tuple(features), missing, source.name, tuple(notes))


def _open(given: str | Path | Frame, max_expansion: int) -> _ItemSource:
    if not isinstance(given, str | Path):
        frame = as_polars(given)
        return _ItemSource(Scan(frame.lazy()), frame, "the given items frame")
    form, paths = find_files(given)
    if len(paths) > 1:
        raise InputError(f"{given} holds {len(paths)} files; give one items file")
    path = paths[0]
    with reading(str(path)), here(paths) as (at,):
        check_file(at, max_expansion, path)
        scan = form.scan(at)
        raw = scan.frame.collect()
        if scan.untyped:  # an empty line of a text file is read as a row without values
            raw = raw.filter(~pl.all_horizontal(pl.all().is_null()))
        kept = None if isinstance(path, Address) else path  # a copy is gone after this
        return _ItemSource(scan, raw, str(path), kept, form.lines_before)


def own_id_column(names: Sequence[str], in_events: str, source: str) -> str:
    """The column named as in the events, else the one with a usual name."""
    if in_events in names:
        return in_events
    try:
        return choose_columns(names, {}, [ITEM], source)[ITEM]
    except InputError as error:
        raise InputError(
            f"{source} has no column {in_events!r} with the item id of each row; its "
            f"columns are {', '.join(map(repr, names[:30]))}; rename the one that holds it to "
            f"{in_events!r}"
        ) from error


def _row_of_each(index: NDArray[np.int64], n_items: int) -> tuple[NDArray[np.int64], int]:
    """The first row of each item, -1 where it has none, and how many rows repeat an item."""
    rows = np.full(n_items, -1, dtype=np.int64)
    known = np.flatnonzero(index >= 0)
    # written backwards, so that the first row of an item is the one that stays
    rows[index[known][::-1] - 1] = known[::-1]
    return rows, len(known) - int((rows >= 0).sum())


def _reorder(values: pl.Series, rows: NDArray[np.int64]) -> pl.Series:
    """A column of the source in the order of the catalogue."""
    index = pl.Series(rows)
    return values.gather(index.set(index < 0, None))


def _features(
    source: _ItemSource, own_ids: str, kinds: Mapping[str, str]
) -> tuple[list[pl.Series], list[Feature], list[str]]:
    names = [name for name in source.raw.columns if name != own_ids]
    _check_names(names, kinds, source.name)
    title = title_column(names)
    columns: list[pl.Series] = []
    features: list[Feature] = []
    notes: list[str] = []
    for name in names:
        declared = source.scan.declared.get(name)
        kind = infer_kind(source.raw[name], kinds.get(name), declared)
        if kind is None:
            notes.append(f"The column {name!r} of {source.name} is not a feature and was left out.")
            continue
        stored = TITLE if name == title and kind == "text" else name
        values = convert(source.column(name, name), kind, spaced=declared == "token_seq")
        columns.append(values.rename(stored))
        features.append(Feature(stored, kind))
    return columns, features, notes


def _check_names(names: Sequence[str], kinds: Mapping[str, str], source: str) -> None:
    for name in sorted(RESERVED & set(names)):
        raise InputError(f"{source} has a feature called {name!r}, a reserved name; rename it")
    for name in kinds:
        if name not in names:
            raise InputError(
                f"{source} has no feature {name!r} to set the kind of; "
                f"its features are {', '.join(map(repr, names[:30]))}"
            )


def _row_notes(source: str, missing: int, repeated: int, n_items: int) -> list[str]:
    notes = []
    if missing:
        notes.append(
            f"{missing:,} of {n_items:,} items are not in {source}: they have no features."
        )
    if repeated:
        notes.append(f"{repeated:,} rows of {source} repeat an item: its first row was taken.")
    return notes
