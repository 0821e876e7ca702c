from __future__ import annotations

import numpy as np
import pytest

from linrec.data.dataset import sequences
from linrec.data.dataset.sequences import Sequences

ROWS = Sequences.of([[1, 2, 3], [], [4, 5]])


def test_rows_are_slices_of_one_array() -> None:
    assert len(ROWS) == 3
    assert [ROWS[row].tolist() for row in range(3)] == [[1, 2, 3], [], [4, 5]]
    assert ROWS.lengths.tolist() == [3, 0, 2]
    assert np.shares_memory(ROWS[2], ROWS.items)


def test_take_reorders() -> None:
    taken = ROWS.take(np.array([2, 0]))
    assert [taken[row].tolist() for row in range(2)] == [[4, 5], [1, 2, 3]]
    assert len(ROWS.take(slice(1, None))) == 2


def test_last_keeps_the_newest() -> None:
    assert [ROWS.last(2)[row].tolist() for row in range(3)] == [[2, 3], [], [4, 5]]
    assert ROWS.last(None) is ROWS


def test_padding_comes_after_the_events() -> None:
    assert ROWS.padded().tolist() == [[1, 2, 3], [0, 0, 0], [4, 5, 0]]
    assert ROWS.padded().dtype == np.int64
    assert Sequences.of([[]]).padded().shape[0] == 1
    assert Sequences.of([]).padded().shape[0] == 0


def test_items_are_counted_in_the_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Sequences(np.array([1, 2, 2, 4, 1], np.int32), np.array([0, 3]), np.array([3, 4]))
    for events in (1, 2, 100):
        monkeypatch.setattr(sequences, "CHUNK_EVENTS", events)
        assert shared.item_counts(5).tolist() == [0, 1, 2, 0, 1, 0]
    assert Sequences.of([]).item_counts(2).tolist() == [0, 0, 0]
