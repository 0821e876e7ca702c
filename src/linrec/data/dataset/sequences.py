"""Stretches of the flat item array: views that cost two integers each, padded only when batched."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from linrec.types import PAD

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sequences:
    """Row r is `items[starts[r]:ends[r]]`, oldest event first."""

    items: NDArray[np.int32]  # [events], shared and possibly memory-mapped
    starts: IntArray  # [rows]
    ends: IntArray  # [rows]

    @classmethod
    def of(cls, rows: list[NDArray[np.int32]] | list[list[int]]) -> Sequences:
        """Lay given rows end to end."""
        arrays = [np.asarray(row, dtype=np.int32) for row in rows]
        ends = np.cumsum([len(row) for row in arrays], dtype=np.int64)
        flat = np.concatenate(arrays) if arrays else np.empty(0, np.int32)
        lengths = np.array([len(row) for row in arrays], dtype=np.int64)
        return cls(flat, ends - lengths, ends)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.items[self.starts[row] : self.ends[row]]

    @property
    def lengths(self) -> IntArray:
        return self.ends - self.starts

    def take(self, rows: IntArray | slice) -> Sequences:
        return replace(self, starts=self.starts[rows], ends=self.ends[rows])

    def last(self, count: int | None) -> Sequences:
        """Keep the newest `count` events of each row (None keeps all)."""
        if count is None:
            return self
        return replace(self, starts=np.maximum(self.starts, self.ends - count))

    def padded(self) -> IntArray:
        """All rows as one array [rows, longest], PAD after each row's end."""
        places = np.arange(max(int(self.lengths.max(initial=0)), 1))
        where = self.starts[:, None] + places
        inside = places < self.lengths[:, None]
        rows = np.full(where.shape, PAD, dtype=np.int64)
        rows[inside] = self.items[where[inside]]
        return rows
