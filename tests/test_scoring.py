"""The ranking path against slow twins that spell out what is meant."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from linrec import scoring
from linrec.data.dataset.pasts import seen_before
from linrec.data.dataset.sequences import Sequences, events_of
from linrec.scoring import (
    MISS,
    hide_seen,
    item_scores,
    rank_among,
    rank_of_target,
    seen_hidden,
    top_k,
)
from linrec.types import PAD

INF = float("inf")
NAN = float("nan")

# few distinct values, so that ties are the rule; hidden items and NaN among them
SCORE = st.sampled_from([-INF, -1.0, 0.0, 0.5, 2.0, INF, NAN])
TABLE = st.integers(1, 9).flatmap(
    lambda n: st.lists(st.lists(SCORE, min_size=n, max_size=n), min_size=1, max_size=5)
)


def with_pad(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor([[-INF, *row] for row in rows])


def slow_top_k(row: list[float], k: int) -> list[tuple[int, float]]:
    shown = [(item, score) for item, score in enumerate(row) if item != PAD and score > -INF]
    best = sorted(shown, key=lambda pair: (-pair[1], pair[0]))[:k]
    return best + [(PAD, -INF)] * (k - len(best))


def slow_rank(row: list[float], target: int, others: set[int]) -> int:
    if not row[target] > -INF:
        return MISS
    rivals = others - {target, PAD}
    return sum(not row[item] < row[target] for item in rivals)


def test_item_scores_are_products_in_float32() -> None:
    hidden = torch.tensor([[1.0, 2.0], [0.0, -1.0]], dtype=torch.bfloat16)
    vectors = torch.tensor([[9.0, 9.0], [1.0, 0.0], [0.5, 3.0]], dtype=torch.bfloat16)
    expected = torch.tensor([[-INF, 1.0, 6.5], [-INF, 0.0, -3.0]])
    assert_close(item_scores(hidden, vectors), expected)
    biased = item_scores(hidden, vectors, torch.tensor([5.0, 10.0, -1.0]))
    assert_close(biased, expected + torch.tensor([0.0, 10.0, -1.0]))


def test_item_scores_stay_float32_under_autocast() -> None:
    hidden, vectors = torch.randn(3, 16), torch.randn(50, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = item_scores(hidden, vectors)
    assert scores.dtype == torch.float32
    assert_close(scores, item_scores(hidden, vectors))


def test_hide_seen_hides_each_rows_own_history() -> None:
    scores = torch.zeros(3, 5)
    histories = Sequences.of([[1, 4, 1], [], [2]])
    hidden = hide_seen(scores, histories)
    assert hidden.isinf().tolist() == [
        [False, True, False, False, True],
        [False] * 5,
        [False, False, True, False, False],
    ]
    assert not scores.isinf().any(), "the given scores are left as they were"


def test_hide_seen_takes_an_expanded_row() -> None:
    hidden = hide_seen(torch.zeros(4).expand(2, -1), Sequences.of([[1], [2]]))
    assert hidden.tolist() == [[0.0, -INF, 0.0, 0.0], [0.0, 0.0, -INF, 0.0]]


@given(TABLE, st.integers(1, 12))
def test_top_k_matches_brute_force(rows: list[list[float]], k: int) -> None:
    scores = with_pad(rows)
    items, best = top_k(scores, k)
    assert items.shape == best.shape == (len(rows), k)
    for row, got_items, got in zip(scores.tolist(), items.tolist(), best.tolist(), strict=True):
        assert list(zip(got_items, got, strict=True)) == slow_top_k(row, k)


def test_top_k_settles_ties_by_index_in_large_tables() -> None:
    scores = torch.zeros(3, 10_001)
    scores[:, PAD] = -INF
    scores[1, 7_000] = 1.0
    items, _ = top_k(scores, 4)
    assert items.tolist() == [[1, 2, 3, 4], [7_000, 1, 2, 3], [1, 2, 3, 4]]


def test_top_k_never_shows_pad_even_if_it_scores() -> None:
    items, _ = top_k(torch.tensor([[9.0, 1.0, 2.0]]), 3)
    assert items.tolist() == [[2, 1, PAD]]


def test_top_k_refuses_no_items() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        top_k(torch.zeros(1, 3), 0)


@given(TABLE, st.randoms(use_true_random=False))
def test_rank_of_target_matches_brute_force(rows: list[list[float]], random) -> None:
    scores = with_pad(rows)
    targets = [random.randint(1, len(rows[0])) for _ in rows]
    everything = set(range(scores.shape[1]))
    expected = [
        slow_rank(row, target, everything)
        for row, target in zip(scores.tolist(), targets, strict=True)
    ]
    ranks = rank_of_target(scores, torch.tensor(targets))
    assert ranks.dtype == torch.int64
    assert ranks.tolist() == expected


@given(TABLE, st.randoms(use_true_random=False), st.integers(1, 15))
def test_rank_among_matches_brute_force(rows: list[list[float]], random, count: int) -> None:
    scores = with_pad(rows)
    draw = lambda: random.randint(1, len(rows[0]))  # noqa: E731
    targets = [draw() for _ in rows]
    candidates = [[draw() for _ in range(count)] for _ in rows]
    expected = [
        slow_rank(row, target, set(others))
        for row, target, others in zip(scores.tolist(), targets, candidates, strict=True)
    ]
    given_candidates = torch.tensor(candidates, dtype=torch.int32)
    assert rank_among(scores, torch.tensor(targets), given_candidates).tolist() == expected


def test_ranks_by_hand() -> None:
    scores = torch.tensor(
        [
            [-INF, 0.3, 0.9, 0.3, -INF],  # the target ties with item 3 and loses to item 2
            [-INF, 0.3, 0.9, 0.3, -INF],  # hidden: a miss
            [-INF, NAN, 0.9, 0.3, 0.1],  # NaN: a miss
            [-INF, NAN, 0.9, 0.3, 0.1],  # best, but not said to beat NaN
        ]
    )
    assert rank_of_target(scores, torch.tensor([1, 4, 1, 2])).tolist() == [2, MISS, MISS, 1]


def test_duplicates_and_the_target_among_candidates_count_once_and_not_at_all() -> None:
    scores = torch.tensor([[-INF, 5.0, 4.0, 3.0, 2.0]])
    candidates = torch.tensor([[1, 1, 1, 3, 3, 4]])
    assert rank_among(scores, torch.tensor([3]), candidates).tolist() == [1]


def test_a_pad_target_is_refused() -> None:
    with pytest.raises(ValueError, match="PAD"):
        rank_of_target(torch.zeros(1, 3), torch.tensor([PAD]))


@given(st.integers(0, 10_000), st.integers(1, 8))
def test_the_rank_is_the_place_in_the_shown_list(seed: int, n_items: int) -> None:
    """What metrics say of a target is what the user sees, where no score is tied."""
    rng = np.random.default_rng(seed)
    scores = with_pad([rng.permutation(n_items).astype(float).tolist()])
    history = Sequences.of([rng.integers(1, n_items + 1, 3).tolist()])
    shown = top_k(hide_seen(scores, history), n_items)[0][0].tolist()
    for target in range(1, n_items + 1):
        rank = rank_of_target(hide_seen(scores, history), torch.tensor([target])).item()
        assert rank == (shown.index(target) if target in shown else MISS)


@given(st.lists(st.lists(st.integers(1, 6), max_size=5), min_size=1, max_size=6))
def test_events_of_lays_rows_flat(rows: list[list[int]]) -> None:
    got_rows, got_items = events_of(Sequences.of(rows))
    expected = [(row, item) for row, items in enumerate(rows) for item in items]
    assert list(zip(got_rows.tolist(), got_items.tolist(), strict=True)) == expected


@given(st.lists(st.lists(st.integers(1, 4), max_size=4), min_size=1, max_size=6))
def test_seen_before_looks_into_the_own_history(rows: list[list[int]]) -> None:
    targets = np.arange(len(rows)) % 4 + 1
    expected = [target in row for target, row in zip(targets.tolist(), rows, strict=True)]
    assert seen_before(Sequences.of(rows), targets).tolist() == expected


def test_rows_of_a_shared_array_may_lie_anywhere() -> None:
    flat = np.array([1, 2, 3, 4, 5], dtype=np.int32)
    some = Sequences(flat, np.array([3, 0, 2]), np.array([5, 2, 2]))
    rows, items = events_of(some)
    assert rows.tolist() == [0, 0, 1, 1]
    assert items.tolist() == [4, 5, 1, 2]


def test_gradients_flow_through_item_scores() -> None:
    hidden = torch.randn(2, 3, requires_grad=True)
    item_scores(hidden, torch.randn(4, 3))[:, 1:].sum().backward()
    assert hidden.grad is not None
    assert math.isfinite(hidden.grad.sum().item())


@pytest.mark.parametrize("one_row_for_all", [False, True])
def test_seen_items_come_back_after_they_were_hidden(one_row_for_all: bool) -> None:
    table = torch.arange(12.0).view(3, 4)
    scores = table[:1].expand(3, -1) if one_row_for_all else table
    before = scores.clone()
    histories = Sequences.of([[1, 3, 1], [], [2]])
    expected = hide_seen(scores, histories)
    with suppress(KeyError), seen_hidden(scores, histories) as hidden:
        assert_close(hidden, expected)
        raise KeyError
    assert_close(scores, before)


@given(TABLE, st.integers(1, 5))
def test_ranks_do_not_depend_on_the_pieces_they_are_counted_in(rows, piece) -> None:
    scores = with_pad(rows)
    targets = torch.ones(len(rows), dtype=torch.int64)
    whole = rank_of_target(scores, targets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "CACHED_SCORES", piece)
        assert rank_of_target(scores, targets).tolist() == whole.tolist()
