"""Novelty, diversity and calibration of lists: by hand, and pair by pair."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.similarity import ItemSimilarity
from linrec.data.dataset.splits import Owners
from linrec.evaluation import ListMeasures, list_metrics
from linrec.evaluation.list_metrics import (
    divergence,
    diversity,
    list_intervals,
    list_means,
    popularity_groups,
)

POPULARITY = np.array([0, 6, 2, 1, 1, 0])


def similarity() -> ItemSimilarity:
    vectors = np.array([[0, 0], [1, 0], [1, 0], [0, 1], [0.6, 0.8], [0, 0]], np.float32)
    return ItemSimilarity(vectors, ("genre",))


def test_by_hand() -> None:
    histories = Sequences.of([[1, 1, 1, 5], [5, 5]])
    found = ListMeasures.of(POPULARITY, similarity()).of_rows(
        np.array([[1, 2, 3], [4, 0, 0]]), [2, 3], histories
    )
    assert found["popularity@2"].tolist() == [4.0, 1.0]
    assert found["popularity@3"].tolist() == [3.0, 1.0]
    bits = -np.log2(np.array([7, 3, 2, 2, 1]) / 15)
    assert found["novelty@3"] == pytest.approx([bits[:3].mean(), bits[3]])
    assert found["diversity@2"].tolist() == [0.0, 0.0]  # equal items; a list of one
    assert found["diversity@3"] == pytest.approx([2 / 3, 0.0])
    # item 1 has the first fifth of the events and more, 2 and 3 the middle, 4 and 5 the last fifth
    assert popularity_groups(POPULARITY)[1:].tolist() == [0, 1, 2, 2, 2]
    three_quarters, half = np.array([[0.75, 0, 0.25]]), np.array([[0.5, 0.5, 0]])
    assert found["miscalibration@2"] == pytest.approx(
        [divergence(three_quarters, half)[0], 0.0], abs=1e-12
    )


def test_divergence_is_0_of_equal_and_1_of_disjoint_shares() -> None:
    one = np.array([[0.2, 0.3, 0.5], [1, 0, 0], [1, 0, 0], [0, 0, 0]])
    other = np.array([[0.2, 0.3, 0.5], [0, 1, 0], [0.5, 0.5, 0], [1, 0, 0]])
    # of (1, 0) and (1/2, 1/2): H(3/4, 1/4) - H(1/2, 1/2) / 2
    expected = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)) - 0.5
    assert divergence(one, other) == pytest.approx([0, 1, expected, 0])
    assert divergence(other, one) == pytest.approx(divergence(one, other))


def test_diversity_matches_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    items = np.array([rng.permutation(np.arange(1, 20))[:6] for _ in range(7)])
    items[2, 4:] = 0
    monkeypatch.setattr(list_metrics, "AT_ONCE", 100)  # in pieces of two rows
    found = diversity(items, ItemSimilarity(vectors, ("v",)))
    for row, value in zip(items, found, strict=True):
        pairs = [1 - vectors[a] @ vectors[b] for a, b in combinations(row[row > 0], 2)]
        assert value == pytest.approx(np.mean(pairs), abs=1e-6)


def test_users_count_once_and_coverage_has_no_interval() -> None:
    owners = Owners(np.arange(3), np.array([0, 0, 1]))
    counts, listed = {1: np.array([0, 2, 1, 0, 0])}, {"novelty@1": np.array([1.0, 3.0, 4.0])}
    assert list_means(counts, listed, owners) == {"coverage@1": 0.5, "novelty@1": 3.0}
    found = list_intervals(counts, listed, owners, seed=0)
    assert found["coverage@1"].low is None
    novelty = found["novelty@1"]
    assert (novelty.mean, novelty.low, novelty.high) == (3.0, 2.0, 4.0)


def test_without_features_there_is_no_diversity() -> None:
    found = ListMeasures.of(POPULARITY).of_rows(np.array([[1, 2]]), [2], Sequences.of([[3]]))
    assert sorted(found) == ["miscalibration@2", "novelty@2", "popularity@2"]
