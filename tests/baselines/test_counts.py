"""What each baseline counts, by hand and by brute force."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from linrec.baselines import BASELINES
from linrec.baselines.config import PersonalDecayConfig, PersonalLastItemConfig
from linrec.baselines.last_item import transition_counts
from linrec.data.dataset import sequences
from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.splits import leave_one_out
from linrec.scoring import hide_seen, top_k

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
    score = BASELINES["popularity"].fit(Sequences.of([[3, 3, 3, 1], [1, 2, 3]]), 4)
    items, scores = top_k(score(Sequences.of([[1], []])), 4)
    assert items.tolist() == [[3, 1, 2, 4]] * 2
    assert scores[0].tolist() == [4, 2, 1, 0]


def test_last_item_lists_what_followed_it() -> None:
    # after 1: 2 twice, 3 once, 4 once (4 is more frequent); after 5: nothing
    train = Sequences.of([[1, 2], [1, 2], [1, 3], [1, 4], [4, 5], [4, 5]])
    score = BASELINES["last-item"].fit(train, 6)
    histories = Sequences.of([[3, 1], [1, 5], [], [6]])
    after_1, after_5, after_nothing, after_6 = top_k(score(histories), 6)[0].tolist()
    assert after_1[:3] == [2, 4, 3]
    by_popularity = [1, 4, 2, 5, 3, 6]
    assert after_5 == after_nothing == after_6 == by_popularity


def test_popularity_weighs_less_than_one_transition() -> None:
    train = Sequences.of([[1, 2]] + [[3, 4]] * 1_000)
    scores = BASELINES["last-item"].fit(train, 4)(Sequences.of([[1]]))
    assert top_k(scores, 1)[0].item() == 2


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_baselines_count_the_training_part_only(make_store, name) -> None:
    """Nobody trains on 5 or on 1 -> 5, which only held-out events have: 5 is as unknown as 6."""
    store = make_store([[1, 2, 3, 1, 5], [2, 3, 2, 1, 5], [3, 2, 4, 1, 5]], n_items=6)
    split = leave_one_out(store.sequences())
    scores = BASELINES[name].fit(split.train, store.n_items)(split.test.histories)
    assert scores[:, 5].tolist() == scores[:, 6].tolist()
    assert (scores[:, 1:5] >= scores[:, [6]]).all()


def personal_decay_by_hand(row: list[int], decay: float) -> dict[int, float]:
    weights: dict[int, float] = {}
    for age, item in enumerate(reversed(row)):
        weights[item] = weights.get(item, 0.0) + decay**age
    return weights


def test_personal_counts_the_history_and_popularity_breaks_ties() -> None:
    # trained: 4 three times, 3 twice, 1 once, 2 and 5 never
    personal = BASELINES["personal"].fit(Sequences.of([[4, 4, 3], [4, 3, 1]]), 5)
    items, scores = top_k(personal(Sequences.of([[2, 1, 3, 2], []])), 5)
    assert items.tolist() == [[2, 3, 1, 4, 5], [4, 3, 1, 2, 5]]
    assert scores[0].tolist() == [2, 1 + 2 / 4, 1 + 1 / 4, 3 / 4, 0]


def test_an_old_habit_gives_way_to_a_new_one() -> None:
    row = [1, 1, 1, 1, 1, 2, 2, 2]
    train = Sequences.of([[3, 3, 4, 3]])
    slow = BASELINES["personal-decay"].fit(train, 4, PersonalDecayConfig(decay=0.95))
    fast = BASELINES["personal-decay"].fit(train, 4, PersonalDecayConfig(decay=0.5))
    assert top_k(slow(Sequences.of([row])), 4)[0].tolist() == [[1, 2, 3, 4]]
    assert top_k(fast(Sequences.of([row])), 4)[0].tolist() == [[2, 1, 3, 4]]


@given(ROWS, ROWS)
def test_without_decay_it_is_personal(train, rows) -> None:
    plain = BASELINES["personal"].fit(Sequences.of(train), 6)
    decayed = BASELINES["personal-decay"].fit(
        Sequences.of(train), 6, PersonalDecayConfig(decay=1.0)
    )
    assert torch.equal(plain(Sequences.of(rows)), decayed(Sequences.of(rows)))


def test_even_a_very_old_event_weighs_more_than_none() -> None:
    history = Sequences.of([[1] + [2] * 5_000])
    decayed = BASELINES["personal-decay"].fit(
        Sequences.of([[3] * 9]), 3, PersonalDecayConfig(decay=0.5)
    )
    assert top_k(decayed(history), 3)[0].tolist() == [[2, 1, 3]]


@given(ROWS, st.lists(st.integers(1, 6), max_size=9), st.sampled_from([0.3, 0.9, 0.99]))
def test_personal_decay_matches_brute_force(train, row, decay) -> None:
    fitted = BASELINES["personal-decay"].fit(
        Sequences.of(train), 6, PersonalDecayConfig(decay=decay)
    )
    # among others, in a batch whose rows lie apart
    batch = Sequences.of([[1, 2, 3], row, [5] * 4]).take(np.array([2, 1]))
    scores = fitted(batch)[1]
    weights = personal_decay_by_hand(row, decay)
    counts = Sequences.of(train).item_counts(6)
    for item in range(1, 7):
        expected = weights.get(item, counts[item] / (counts.max() + 1) - 1)
        assert scores[item].item() == pytest.approx(expected)
    assert scores[0].item() == float("-inf")


@given(ROWS, st.lists(st.integers(1, 6), max_size=9), st.sampled_from([0.1, 0.5, 1.0]))
def test_the_mixture_is_made_of_two_distributions(train, row, share) -> None:
    assume(any(train))
    config = PersonalLastItemConfig(decay=0.8, transition_share=share)
    fitted = BASELINES["personal-last-item"].fit(Sequences.of(train), 6, config)
    scores = fitted(Sequences.of([row]))[0, 1:]
    personal, total = personal_decay_by_hand(row, 0.8), sum(0.8**age for age in range(len(row)))
    after = [b for one in train for a, b in pairwise(one) if row and a == row[-1]]
    counts = Sequences.of(train).item_counts(6)
    for item in range(1, 7):
        habit = personal.get(item, 0.0) / total if row else 0.0
        step = (after.count(item) + counts[item] / counts.sum()) / (len(after) + 1)
        expected = (1 - share) * habit + share * step
        assert scores[item - 1].item() == pytest.approx(expected)
    assert scores.sum().item() == pytest.approx(1.0 if row else share)


@given(ROWS, st.lists(st.lists(st.integers(1, 6), max_size=9), min_size=1, max_size=5))
def test_what_a_baseline_is_without_seen_items(train, rows) -> None:
    """The evaluation leaves those out that would only repeat another one."""
    assume(any(train))
    histories = Sequences.of(rows)
    order = {
        name: top_k(hide_seen(kind.fit(Sequences.of(train), 6)(histories), histories), 6)[0]
        for name, kind in BASELINES.items()
        if not kind.costly
    }
    for name, kind in BASELINES.items():
        if kind.same_if_hidden:
            assert order[name].tolist() == order[kind.same_if_hidden].tolist()


def test_the_test_history_ends_in_the_validation_event(make_store) -> None:
    store = make_store([[4, 3, 1, 2], [1, 2, 4, 3], [1, 2, 3, 4]])
    split = leave_one_out(store.sequences())
    scores = BASELINES["last-item"].fit(split.train, store.n_items)(split.test.histories)
    assert top_k(scores, 1)[0][0].item() == 2, "user 0 was last seen at 1, which 2 follows"
