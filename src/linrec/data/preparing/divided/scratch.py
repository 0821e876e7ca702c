"""Files that tasks leave for each other: each appears whole, and may be written twice."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from linrec.files.atomic import writing


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path to write to, which then takes the name."""
    draft = path.with_name(f".{uuid.uuid4().hex}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield draft
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def save(path: Path, array: NDArray[Any]) -> None:
    with whole(path) as draft, draft.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def load(path: Path) -> NDArray[Any]:
    """The array, mapped into memory."""
    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def save_tables(path: Path, tables: Sequence[pl.DataFrame]) -> None:
    """Tables of the same columns in one file."""
    oldest = pl.CompatLevel.oldest()
    batches = [table.rechunk().to_arrow(compat_level=oldest) for table in tables]
    with (
        whole(path) as draft,
        pa.OSFile(str(draft), "wb") as file,
        pa.ipc.new_file(file, batches[0].schema) as writer,
    ):
        for batch in batches:
            writer.write_batch(
                batch.combine_chunks().to_batches()[0] if len(batch) else _none(batch)
            )


def _none(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=table.schema)


def load_table(path: Path, place: int = 0) -> pl.DataFrame:
    """One of the tables."""
    with pa.memory_map(str(path)) as file:
        batch = pa.ipc.open_file(file).get_batch(place)
        table = pl.from_arrow(pa.Table.from_batches([batch]))
    assert isinstance(table, pl.DataFrame)
    return table


def remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


class Encoded(NamedTuple):
    """Ids as numbers from 0, in the order in which they first appear."""

    codes: NDArray[np.int32]  # [rows]
    ids: pl.Series
    first: NDArray[np.int64]  # [ids], the first row of each


def encode(values: pl.Series) -> Encoded:
    arrow = values.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode()
    # pyarrow's own `to_numpy` imports pandas, where that is installed, in every worker
    codes = pl.Series(arrow.indices).to_numpy().astype(np.int32, copy=False)
    # a code is new where it is larger than all before it
    first = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1) > 0)
    ids = pl.from_arrow(arrow.dictionary)
    assert isinstance(ids, pl.Series)
    return Encoded(codes, ids.alias(values.name), first.astype(np.int64))
