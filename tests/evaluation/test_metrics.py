"""Metrics by hand, and laws they keep."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linrec.evaluation import (
    METRICS,
    bootstrap,
    coverage,
    intervals,
    means,
    metric_names,
    mrr,
    ndcg,
    per_user,
    recall,
)
from linrec.types import InputError

RANKS = st.lists(st.integers(0, 5_000), min_size=1, max_size=60).map(np.array)


def test_metrics_by_hand() -> None:
    ranks = np.array([0, 1, 2, 9, 10])
    assert recall(ranks, 10).tolist() == [1, 1, 1, 1, 0]
    assert ndcg(ranks, 10).tolist() == pytest.approx(
        [1.0, 1 / math.log2(3), 0.5, 1 / math.log2(11), 0.0]
    )
    assert mrr(ranks, 10).tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 10, 0])
    assert mrr(ranks).tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 10, 1 / 11])
    assert recall(ranks, 1).tolist() == [1, 0, 0, 0, 0]


def test_names_of_all_metrics() -> None:
    assert metric_names((5, 10)) == [
        "recall@5", "recall@10", "ndcg@5", "ndcg@10", "mrr@5", "mrr@10", "mrr",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["ndcg", "recall", "mrr@", "mrr@0", "ndcg@-1", "ndcg@x", "hits@10"]
)
def test_unknown_metrics_are_named(name: str) -> None:
    with pytest.raises(InputError, match=r"ndcg@10"):
        per_user(name, np.array([0]))


@given(RANKS, st.sampled_from(sorted(METRICS)), st.integers(1, 100), st.integers(1, 100))
def test_metrics_grow_with_k_and_stay_within_one(ranks, family, a, b) -> None:
    small, large = sorted((a, b))
    at_small, at_large = (per_user(f"{family}@{k}", ranks) for k in (small, large))
    assert (at_small <= at_large).all()
    assert at_large.max() <= 1
    assert at_small.min() >= 0


@given(RANKS, st.integers(1, 100))
def test_mrr_is_at_most_ndcg_is_at_most_recall(ranks, k) -> None:
    assert (mrr(ranks, k) <= ndcg(ranks, k)).all()
    assert (ndcg(ranks, k) <= recall(ranks, k)).all()


@given(st.integers(1, 50), st.integers(1, 20))
def test_perfect_ranks_get_one(users: int, k: int) -> None:
    assert set(means(np.zeros(users, np.int64), (k,)).values()) == {1.0}


@given(RANKS, st.integers(0, 5))
def test_the_interval_contains_the_mean(ranks, seed) -> None:
    for name, interval in intervals(ranks, (1, 10), seed).items():
        assert interval.mean == pytest.approx(means(ranks, (1, 10))[name])
        assert 0 <= interval.low <= interval.mean <= interval.high <= 1 + 1e-12


@given(RANKS)
def test_the_interval_is_the_same_for_the_same_seed_and_any_order(ranks) -> None:
    shuffled = np.random.default_rng(0).permutation(ranks)
    first, second = intervals(ranks, (10,), seed=3), intervals(shuffled, (10,), seed=3)
    for name in first:
        assert first[name].low == pytest.approx(second[name].low)
        assert first[name].high == pytest.approx(second[name].high)


@pytest.mark.parametrize("name", ["recall@10", "ndcg@10", "mrr"])
def test_the_interval_agrees_with_drawing_the_users_themselves(name: str) -> None:
    rng = np.random.default_rng(1)
    values = per_user(name, rng.geometric(0.02, 800) - 1)
    slow = values[rng.integers(0, len(values), (4_000, len(values)))].mean(1)
    low, high = np.quantile(slow, [0.025, 0.975])
    found = bootstrap(values, seed=0)
    assert found.low == pytest.approx(low, abs=0.1 * (high - low))
    assert found.high == pytest.approx(high, abs=0.1 * (high - low))


def test_the_interval_of_a_million_users_takes_no_million_draws() -> None:
    ranks = np.random.default_rng(0).integers(0, 500_000, 1_000_000)
    start = time.perf_counter()
    found = bootstrap(mrr(ranks), seed=0)
    assert time.perf_counter() - start < 20, "drawing users one by one would take minutes"
    assert found.low < found.mean < found.high


def test_no_users_have_no_mean() -> None:
    with pytest.raises(ValueError, match="no users"):
        bootstrap(np.empty(0))


def test_coverage_by_hand() -> None:
    assert coverage(np.array([0, 3, 0, 1, 0])) == 0.5  # items 1 and 3 of four
