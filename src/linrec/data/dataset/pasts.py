"""What each of some histories holds, where many of them are beginnings of one long history."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.sequences import IntArray, Sequences, concatenated_ranges, events_of


def shared(histories: Sequences) -> tuple[Sequences, IntArray]:
    """The longest of the rows that begin at the same event, and which of these each row is in."""
    starts, of = np.unique(histories.starts, return_inverse=True)
    ends = starts.copy()
    np.maximum.at(ends, of, histories.ends)
    longest = replace(histories, starts=starts, ends=ends, until=None)
    return longest, of


def past_items(histories: Sequences) -> tuple[IntArray, IntArray]:
    """Rows and items: every row with each item of its history, once or more often.

    Of rows that begin at the same event, the items are counted once for all of them. So the past
    of each event of a long history takes as many numbers as it has different items, not events.
    """
    longest, of = shared(histories)
    if len(longest) == len(histories):
        return events_of(histories)
    row, items = events_of(longest)
    _, first = np.unique(row * (items.max(initial=0) + 1) + items, return_index=True)
    first.sort()  # positions of first appearances, row by row and in the order of time
    begin = (np.cumsum(longest.lengths) - longest.lengths)[of]
    low, high = (np.searchsorted(first, begin + length) for length in (0, histories.lengths))
    rows = np.repeat(np.arange(len(histories)), high - low)
    return rows, items[first[concatenated_ranges(low, high - low)]]


def seen_before(
    histories: Sequences, targets: IntArray, rows: IntArray | None = None
) -> NDArray[np.bool_]:
    """Whether each target is already in the history of its row, [T].

    rows: [T], the row of each target; None: one target for each row.
    """
    past_rows, items = past_items(histories)
    if rows is None:
        hits = past_rows[items == targets[past_rows]]
        return np.bincount(hits, minlength=len(histories)) > 0
    width = max(items.max(initial=0), targets.max(initial=0)) + 1
    return np.isin(rows * width + targets, past_rows * width + items)
