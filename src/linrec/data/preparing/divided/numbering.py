"""Ids of all chunks get numbers in the order of their first rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.preparing.divided.job import Job
from linrec.data.preparing.divided.scratch import encode, load, load_table, save, save_tables


class Starts(NamedTuple):
    """Where the chunks begin in the log, and the end."""

    rows: NDArray[np.int64]

    @property
    def chunks(self) -> int:
        return len(self.rows) - 1


@dataclass(frozen=True)
class MergeBucket:
    """Brings the ids of one bucket together."""

    role: str
    place: int
    kind: pl.DataType  # of the ids of all chunks
    starts: Starts

    def do(self, job: Job) -> int:
        """How many different ids there are."""
        tables = [
            load_table(job.chunk(chunk) / f"{self.role}-ids.arrow", self.place)
            for chunk in range(self.starts.chunks)
        ]
        merged = pl.concat([table.with_columns(pl.col("id").cast(self.kind)) for table in tables])
        lengths = np.array([len(table) for table in tables])
        codes, ids, first = encode(merged["id"])
        rows = np.repeat(self.starts.rows[:-1], lengths) + merged["row"].to_numpy()
        counts = np.bincount(codes, weights=merged["rows"].to_numpy(), minlength=len(ids))
        folder = job.bucket(self.role, self.place)
        save(folder / "codes.npy", codes)
        save(folder / "chunks.npy", np.concatenate([[0], np.cumsum(lengths)]))
        save(folder / "first.npy", rows[first])
        save(folder / "rows.npy", counts.astype(np.int64))
        save_tables(folder / "ids.arrow", [ids.to_frame("id")])
        return len(ids)


class Numbered(NamedTuple):
    """The numbers of the ids of one role."""

    role: str
    starts: NDArray[np.int64]  # [buckets + 1], in the array of all numbers
    order: NDArray[np.int64]  # [ids], where the id of each number is among those of all buckets
    rows: NDArray[np.int64]  # [ids], by number


def number(job: Job, role: str, found: list[int]) -> Numbered:
    """found: ids in each bucket. Leaves their numbers for `numbers_of`."""
    folders = [job.bucket(role, place) for place in range(len(found))]
    first = np.concatenate([load(folder / "first.npy") for folder in folders])
    order = np.argsort(first)
    numbers = np.empty(len(order), np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    save(job.folder / "ids" / f"{role}.npy", numbers)
    rows = np.concatenate([load(folder / "rows.npy") for folder in folders])[order]
    starts = np.concatenate([[0], np.cumsum(found)]).astype(np.int64)
    return Numbered(role, starts, order, rows)


def ids_of(job: Job, numbered: Numbered, kept: NDArray[np.bool_]) -> pl.Series:
    """The ids of some numbers, in their order."""
    tables = [
        load_table(job.bucket(numbered.role, place) / "ids.arrow")["id"]
        for place in range(len(numbered.starts) - 1)
    ]
    return pl.concat(tables, rechunk=True).gather(numbered.order[kept]).alias(numbered.role)


def numbers_of(job: Job, role: str, chunk: int, starts: NDArray[np.int64]) -> NDArray[np.int32]:
    """[rows of the chunk], the numbers of their ids."""
    numbers = load(job.folder / "ids" / f"{role}.npy")
    codes = np.load(job.chunk(chunk) / f"{role}.npy", allow_pickle=False)
    table = np.empty(int(codes.max(initial=-1)) + 1, np.int32)
    for place in range(job.buckets):
        folder = job.bucket(role, place)
        own = load_table(job.chunk(chunk) / f"{role}-ids.arrow", place)["code"].to_numpy()
        first, end = load(folder / "chunks.npy")[chunk : chunk + 2]
        table[own] = numbers[starts[place] + load(folder / "codes.npy")[first:end]]
    return np.asarray(table[codes])
