"""What was seen before each event, against a set that grows event by event."""

from __future__ import annotations

import numpy as np
import pytest

from linrec.data.dataset.batches import windows
from linrec.data.dataset.seen import SeenIndex, concatenated_ranges
from linrec.data.dataset.sequences import Sequences
from linrec.types import SeenItems


def up_to_each(histories: Sequences, inputs: Sequences) -> SeenItems:
    """Before the event after each of these."""
    events = concatenated_ranges(inputs.starts + 1, inputs.lengths)
    return SeenIndex.of(histories).before(events)


def grown(histories: Sequences, inputs: Sequences) -> list[set[int]]:
    """Event by event, from each user's first event on."""
    found = []
    for start, end in zip(inputs.starts, inputs.ends, strict=True):
        begin = max(first for first in histories.starts if first <= start)
        found += [set(histories.items[begin : at + 1].tolist()) for at in range(start, end)]
    return found


@pytest.mark.parametrize("window", [1, 4, 100])
def test_it_is_the_set_of_all_items_so_far_window_or_not(window) -> None:
    rng = np.random.default_rng(0)
    histories = Sequences.of([rng.integers(1, 9, n).tolist() for n in (1, 2, 30, 7, 13)])
    inputs = windows(histories, window, rng)
    inputs = inputs.take(rng.permutation(len(inputs)))
    seen = up_to_each(histories, inputs)
    for start, count, right in zip(seen.starts, seen.counts, grown(histories, inputs), strict=True):
        items = seen.items[start : start + count].tolist()
        assert len(items) == len(right)
        assert set(items) == right


def test_rows_may_leave_out_events_between_them() -> None:
    """The training rows of a split: what is held out belongs to no row."""
    items = np.array([3, 1, 3, 9, 9, 2, 2, 1, 9, 9], dtype=np.int32)
    rows = Sequences(items, np.array([0, 5]), np.array([3, 8]))
    seen = up_to_each(rows, rows)
    assert seen.items.tolist() == [3, 1, 2, 1]
    assert seen.starts.tolist() == [0, 0, 0, 2, 2, 2]
    assert seen.counts.tolist() == [1, 2, 2, 1, 1, 2]


def test_no_rows() -> None:
    nothing = Sequences.of([])
    assert all(len(part) == 0 for part in up_to_each(nothing, nothing))
