"""What a user had seen before each event: the distinct items of the past, as ranges of one array.

Each user's distinct items stand in the order in which they first appeared. So the items seen up to
an event are the beginning of that list, and two integers per event identify them, however long the
history. No list is longer than the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from linrec.data.dataset.sequences import IntArray, Sequences, concatenated_ranges
from linrec.types import SeenItems


@dataclass(frozen=True, slots=True)
class SeenIndex:
    """The distinct items of all rows end to end, and how many of them come before each event."""

    starts: IntArray  # [rows], where each row begins in the array of events
    distinct: NDArray[np.int32]  # [distinct items of all rows]
    before_event: IntArray  # [events + 1], how many of `distinct` come before each event

    @classmethod
    def of(cls, rows: Sequences) -> SeenIndex:
        """rows: whole histories, one row per user, in the order of the array."""
        first = _first_appearances(rows)
        before = np.concatenate([[0], np.cumsum(first)])
        return cls(rows.starts, np.asarray(rows.items[first]), before)

    def before(self, events: IntArray) -> SeenItems:
        """What had been seen before each of these events, given by their positions in the array.

        Events of the same row share one list, of which each has the beginning.
        """
        row = np.searchsorted(self.starts, events, side="right") - 1
        rows, of = np.unique(row, return_inverse=True)
        first = self.before_event[self.starts[rows]]
        counts = self.before_event[events] - first[of]
        lengths = np.zeros(len(rows), np.int64)
        np.maximum.at(lengths, of, counts)
        seen = self.distinct[concatenated_ranges(first, lengths)]
        starts = (np.cumsum(lengths) - lengths)[of]
        items, begins, n = (torch.from_numpy(x.astype(np.int64)) for x in (seen, starts, counts))
        return SeenItems(items, begins, n, known=counts)


def _first_appearances(rows: Sequences) -> NDArray[np.bool_]:
    """[events], True where a row has an item for the first time; False outside the rows."""
    events = concatenated_ranges(rows.starts, rows.lengths)
    items = np.asarray(rows.items[events]).astype(np.int64)
    row = np.repeat(np.arange(len(rows)), rows.lengths)
    _, first = np.unique(row * (items.max(initial=0) + 1) + items, return_index=True)
    appears = np.zeros(len(rows.items), dtype=np.bool_)
    appears[events[first]] = True
    return appears
