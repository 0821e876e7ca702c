"""What a user had seen before each event: the distinct items of the past, as ranges of one array.

Each user's distinct items stand in the order in which they first appeared. So the items seen up to
an event are the beginning of that list, and two integers per event name them, however long the
history. No list is longer than the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrec.data.dataset.sequences import IntArray, Sequences


class SeenItems(NamedTuple):
    """For each of T targets the items that will not be shown with it."""

    items: Tensor  # [M] int64
    starts: Tensor  # [T] int64: target t has seen items[starts[t] : starts[t] + counts[t]]
    counts: Tensor  # [T] int64


@dataclass(frozen=True, slots=True)
class SeenIndex:
    """The distinct items of all rows end to end, and how many of them come before each event."""

    starts: IntArray  # [rows], where each row begins in the array of events
    distinct: NDArray[np.int32]  # [distinct items of all rows]
    before: IntArray  # [events + 1], of `distinct` belong to the events before this one

    @classmethod
    def of(cls, rows: Sequences) -> SeenIndex:
        """rows: whole histories, one row per user, in the order of the array."""
        first = _first_appearances(rows)
        before = np.concatenate([[0], np.cumsum(first)])
        return cls(rows.starts, np.asarray(rows.items)[first], before)

    def up_to_each(self, inputs: Sequences) -> SeenItems:
        """What had been seen up to and including each event of these windows, row after row."""
        history = self.starts[np.searchsorted(self.starts, inputs.starts, side="right") - 1]
        begin, end = self.before[history], self.before[inputs.ends]
        events = concatenated_ranges(inputs.starts, inputs.lengths)
        seen = self.distinct[concatenated_ranges(begin, end - begin)]
        offset = np.cumsum(end - begin) - (end - begin)  # of each row in `seen`
        counts = self.before[events + 1] - np.repeat(begin, inputs.lengths)
        starts = np.repeat(offset, inputs.lengths)
        return SeenItems(*(torch.from_numpy(x.astype(np.int64)) for x in (seen, starts, counts)))


def _first_appearances(rows: Sequences) -> NDArray[np.bool_]:
    """[events], True where a row has an item for the first time; False outside the rows."""
    events = concatenated_ranges(rows.starts, rows.lengths)
    items = np.asarray(rows.items)[events].astype(np.int64)
    row = np.repeat(np.arange(len(rows)), rows.lengths)
    _, first = np.unique(row * (items.max(initial=0) + 1) + items, return_index=True)
    found = np.zeros(len(rows.items), dtype=np.bool_)
    found[events[first]] = True
    return found


def concatenated_ranges(starts: IntArray, lengths: IntArray) -> IntArray:
    """start, start + 1, ... of each range, end to end: [5, 2], [2, 3] -> [5, 6, 2, 3, 4]."""
    offset = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(lengths.sum()) + np.repeat(starts - offset, lengths), np.int64)
