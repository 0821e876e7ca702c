"""Arrays of several files that are read as one, without ever being joined in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One array of the parts end to end; they stay where they are, such as in mapped files.

    More than one give a `Chunked`, which is no NumPy array and stands in for one where events are
    read: `len`, ranges, positions, masks, `min` and `max`. Whatever else is done with it makes an
    array of all events first.
    """
    return parts[0] if len(parts) == 1 else cast("NDArray[Any]", Chunked(parts))


def parts_of(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The parts of a joined array, end to end; any other is one part."""
    yield from array.parts if isinstance(array, Chunked) else (array,)


def update(digest: hashlib._Hash, array: NDArray[Any], kind: str) -> None:
    """Add an array to a hash; it makes no difference how it is divided."""
    for part in parts_of(array):
        digest.update(np.ascontiguousarray(part, dtype=kind).data)


class Chunked:
    """Arrays of one type and one axis, end to end."""

    ndim = 1

    def __init__(self, parts: Iterable[NDArray[Any]]) -> None:
        self.parts = tuple(parts)
        self.starts = np.cumsum([0, *(len(part) for part in self.parts)])
        self.dtype = self.parts[0].dtype

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    def __getitem__(self, where: Any) -> Any:
        if isinstance(where, slice):
            return self._range(*where.indices(len(self)))
        index = np.asarray(where)
        if index.dtype == np.bool_:
            if index.shape != self.shape:
                raise IndexError(f"a mask of shape {index.shape} for {len(self)} events")
            index = np.flatnonzero(index)
        return self._gather(index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array of several parts is a copy")
        whole = np.concatenate(self.parts)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def min(self) -> Any:
        return min(part.min() for part in self.parts if len(part))

    def max(self) -> Any:
        return max(part.max() for part in self.parts if len(part))

    def _range(self, start: int, stop: int, step: int) -> NDArray[Any]:
        if step != 1:
            return cast("NDArray[Any]", self._gather(np.arange(start, stop, step)))
        first, last = (int(self._part(np.array(place))) for place in (start, max(stop - 1, start)))
        pieces = [
            self.parts[part][max(start - self.starts[part], 0) : max(stop - self.starts[part], 0)]
            for part in range(first, min(last, len(self.parts) - 1) + 1)
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate([self.parts[0][:0], *pieces])

    def _gather(self, index: NDArray[Any]) -> Any:
        if not index.size:
            return np.empty(index.shape, self.dtype)
        index = np.where(index < 0, index + len(self), index)
        if index.min() < 0 or index.max() >= len(self):
            raise IndexError(f"a position outside of {len(self)} events")
        part = self._part(index)
        first, last = int(part.min()), int(part.max())
        if first == last:
            return self.parts[first][index - self.starts[first]]
        found = np.empty(index.shape, self.dtype)
        for each in range(first, last + 1):
            mine = part == each
            found[mine] = self.parts[each][index[mine] - self.starts[each]]
        return found

    def _part(self, index: NDArray[Any]) -> NDArray[np.int64]:
        """Which part each position is in; empty parts hold none."""
        return np.asarray(np.searchsorted(self.starts, index, side="right") - 1, np.int64)
