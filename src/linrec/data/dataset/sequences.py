"""Rows of one flat item array: views of two integers each, padded only when batched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from linrec.types import PAD

IntArray = NDArray[np.int64]

CHUNK_EVENTS = 4_000_000
NO_CONTEXT = 0  # where there is no event, or a mask in its place


@dataclass(frozen=True, slots=True)
class Sequences:
    """Row r is `items[starts[r]:ends[r]]`, oldest event first."""

    items: NDArray[np.int32]  # [events], shared and possibly memory-mapped
    starts: IntArray  # [rows]
    ends: IntArray  # [rows]
    times: NDArray[np.float64] | None = None  # [events], seconds, NaN where unknown
    until: NDArray[np.float64] | None = None  # [rows], when the gap after the newest event ends:
    # at the request, or at the event after the row; NaN or None: unknown
    context: NDArray[np.int32] | None = None  # [events, fields], codes in a model's vocabulary

    @classmethod
    def of(
        cls,
        rows: Sequence[NDArray[np.int32]] | Sequence[list[int]],
        times: Sequence[NDArray[np.float64]] | Sequence[list[float]] | None = None,
        until: Sequence[float] | None = None,
    ) -> Sequences:
        """Lay given rows end to end."""
        arrays = [np.asarray(row, dtype=np.int32) for row in rows]
        ends = np.cumsum([len(row) for row in arrays], dtype=np.int64)
        flat = np.concatenate(arrays) if arrays else np.empty(0, np.int32)
        lengths = np.array([len(row) for row in arrays], dtype=np.int64)
        clock = None if times is None else np.concatenate([np.empty(0), *times])
        closed = None if until is None else np.asarray(until, dtype=np.float64)
        return cls(flat, ends - lengths, ends, clock, closed)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.items[self.starts[row] : self.ends[row]]

    @property
    def lengths(self) -> IntArray:
        return self.ends - self.starts

    def take(self, rows: IntArray | slice) -> Sequences:
        until = None if self.until is None else self.until[rows]
        return replace(self, starts=self.starts[rows], ends=self.ends[rows], until=until)

    def last(self, count: int | None) -> Sequences:
        """Keep the newest `count` events of each row (None keeps all)."""
        if count is None:
            return self
        return replace(self, starts=np.maximum(self.starts, self.ends - count))

    def before(self, ends: IntArray) -> Sequences:
        """The rows up to these ends, each open until the event there."""
        until = None if self.times is None else np.asarray(self.times[ends])
        return replace(self, ends=ends, until=until)

    def without_times(self) -> Sequences:
        return replace(self, times=None, until=None)

    def until_or_unknown(self) -> NDArray[np.float64]:
        """[rows], NaN where it is unknown."""
        return np.full(len(self), np.nan) if self.until is None else self.until

    def padded(self) -> IntArray:
        """All rows as one array [rows, longest], PAD after each row's end."""
        index, inside = self._places()
        rows = np.full(index.shape, PAD, dtype=np.int64)
        rows[inside] = self.items[index[inside]]
        return rows

    def padded_times(self) -> NDArray[np.float64] | None:
        """The times of the same events, NaN after each row's end; None if there are none."""
        if self.times is None:
            return None
        index, inside = self._places()
        rows = np.full(index.shape, np.nan)
        rows[inside] = self.times[index[inside]]
        return rows

    def padded_context(self) -> IntArray | None:
        """The codes of the same events, [rows, longest, fields]; None if there are none."""
        if self.context is None:
            return None
        index, inside = self._places()
        rows = np.full((*index.shape, self.context.shape[1]), NO_CONTEXT, dtype=np.int64)
        rows[inside] = self.context[index[inside]]
        return rows

    def flat_context(self) -> NDArray[np.int32] | None:
        """The codes of all rows end to end."""
        if self.context is None:
            return None
        return self.context[concatenated_ranges(self.starts, self.lengths)]

    def flat_times(self) -> NDArray[np.float64] | None:
        """The times of all rows end to end."""
        if self.times is None:
            return None
        rows = (self.times[start:end] for start, end in zip(self.starts, self.ends, strict=True))
        return np.concatenate([np.empty(0), *rows])

    def _places(self) -> tuple[IntArray, NDArray[np.bool_]]:
        """Where in the flat array each padded position is, and whether it is inside its row."""
        positions = np.arange(max(int(self.lengths.max(initial=0)), 1))
        return self.starts[:, None] + positions, positions < self.lengths[:, None]

    def chunks(self, events: int | None = None) -> Iterator[Sequences]:
        """Some rows at a time, about `events` events each, to bound the memory of a copy."""
        chunk = np.cumsum(self.lengths) // (events or CHUNK_EVENTS)
        starts = np.flatnonzero(np.diff(chunk, prepend=-1))
        for start, stop in pairwise([*starts, len(self)]):
            yield self.take(slice(int(start), int(stop)))

    def item_counts(self, n_items: int) -> IntArray:
        """How often each item occurs in these rows, [n_items + 1]; PAD, index 0, does not."""
        counts = np.zeros(n_items + 1, np.int64)
        for some in self.chunks():
            counts += np.bincount(events_of(some)[1], minlength=n_items + 1)
        return counts


def events_of(sequences: Sequences) -> tuple[IntArray, IntArray]:
    """Every event of every row, end to end: its row and its item, [events] each."""
    lengths = sequences.lengths
    rows = np.repeat(np.arange(len(sequences), dtype=np.int64), lengths)
    before = np.cumsum(lengths) - lengths  # events of earlier rows
    index = np.arange(len(rows), dtype=np.int64) + (sequences.starts - before)[rows]
    return rows, sequences.items[index].astype(np.int64)


def concatenated_ranges(starts: IntArray, lengths: IntArray) -> IntArray:
    """start, start + 1, ... of each range, end to end: [5, 2], [2, 3] -> [5, 6, 2, 3, 4]."""
    offset = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(lengths.sum()) + np.repeat(starts - offset, lengths), np.int64)
