"""The baselines by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linrec.data.dataset import sequences
from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.splits import leave_one_out
from linrec.evaluation import BASELINES, transition_counts
from linrec.scoring import top_k

ROWS = st.lists(st.lists(st.integers(1, 6), max_size=7), min_size=1, max_size=8)


@given(ROWS, st.integers(1, 12))
def test_counts_match_brute_force_however_they_are_cut(rows, at_a_time) -> None:
    counts, follows = np.zeros(7, int), np.zeros((7, 7))
    for row in rows:
        for item in row:
            counts[item] += 1
        for a, b in pairwise(row):
            follows[a, b] += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequences, "CHUNK_EVENTS", at_a_time)
        assert Sequences.of(rows).item_counts(6).tolist() == counts.tolist()
        assert transition_counts(Sequences.of(rows), 6).toarray().tolist() == follows.tolist()


def test_popularity_lists_the_most_frequent_items() -> None:
    score = BASELINES["popularity"](Sequences.of([[3, 3, 3, 1], [1, 2, 3]]), 4)
    items, scores = top_k(score(Sequences.of([[1], []])), 4)
    assert items.tolist() == [[3, 1, 2, 4]] * 2
    assert scores[0].tolist() == [4, 2, 1, 0]


def test_last_item_lists_what_followed_it() -> None:
    # after 1: 2 twice, 3 once, 4 once (4 is more frequent); after 5: nothing
    train = Sequences.of([[1, 2], [1, 2], [1, 3], [1, 4], [4, 5], [4, 5]])
    score = BASELINES["last-item"](train, 6)
    histories = Sequences.of([[3, 1], [1, 5], [], [6]])
    after_1, after_5, after_nothing, after_6 = top_k(score(histories), 6)[0].tolist()
    assert after_1[:3] == [2, 4, 3]
    by_popularity = [1, 4, 2, 5, 3, 6]
    assert after_5 == after_nothing == after_6 == by_popularity


def test_popularity_weighs_less_than_one_transition() -> None:
    train = Sequences.of([[1, 2]] + [[3, 4]] * 1_000)
    scores = BASELINES["last-item"](train, 4)(Sequences.of([[1]]))
    assert top_k(scores, 1)[0].item() == 2


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_baselines_count_the_training_part_only(make_store, name) -> None:
    """Nobody trains on 5 or on 1 -> 5, which only held-out events have."""
    store = make_store([[1, 2, 3, 1, 5], [2, 3, 2, 1, 5], [3, 2, 4, 1, 5]])
    split = leave_one_out(store.sequences())
    scores = BASELINES[name](split.train, store.n_items)(split.test.histories)
    assert scores[:, 5].tolist() == [0, 0, 0]


def test_the_test_history_ends_in_the_validation_event(make_store) -> None:
    store = make_store([[4, 3, 1, 2], [1, 2, 4, 3], [1, 2, 3, 4]])
    split = leave_one_out(store.sequences())
    scores = BASELINES["last-item"](split.train, store.n_items)(split.test.histories)
    assert top_k(scores, 1)[0][0].item() == 2, "user 0 was last seen at 1, which 2 follows"
