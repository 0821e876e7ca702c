"""item-kNN and EASE against the formulas, written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from linrec.baselines import BASELINES, item_knn
from linrec.baselines.config import EASEConfig, ItemKNNConfig
from linrec.data.dataset.sequences import Sequences
from linrec.scoring import top_k
from linrec.types import InputError

ROWS = st.lists(st.lists(st.integers(1, 6), max_size=7), min_size=1, max_size=8)


def had(rows: list[list[int]]) -> np.ndarray:
    matrix = np.zeros((len(rows), 7))
    for row, items in enumerate(rows):
        matrix[row, items] = 1
    return matrix


def neighbours_by_hand(rows: list[list[int]], count: int) -> np.ndarray:
    matrix, kept = had(rows), np.zeros((7, 7))
    for a in range(1, 7):
        cosines = {}
        for b in range(1, 7):
            together = matrix[:, a] @ matrix[:, b]
            if a != b and together:
                cosines[b] = together / np.sqrt(matrix[:, a].sum() * matrix[:, b].sum())
        # rounded: equal cosines must tie whatever the order of the factors
        best = sorted(cosines, key=lambda b: (-round(cosines[b], 9), b))[:count]
        kept[a, best] = [cosines[b] for b in best]
    return kept


@given(ROWS, ROWS, st.integers(1, 6), st.sampled_from([7, 20, 1 << 24]))
def test_item_knn_sums_the_cosines_of_the_nearest(train, rows, count, cells) -> None:
    assume(any(len(set(row)) > 1 for row in train))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_knn, "CELLS", cells)
        fitted = BASELINES["item-knn"].fit(Sequences.of(train), 6, ItemKNNConfig(neighbours=count))
    popularity = Sequences.of(train).item_counts(6)
    tie_break = item_knn.TIE_BREAK * popularity / (popularity.max() + 1)
    expected = had(rows) @ neighbours_by_hand(train, count) + tie_break
    found = fitted(Sequences.of(rows)).numpy()
    if count >= 5:  # of fewer, which of two equal cosines is kept may hang on the last bit
        np.testing.assert_allclose(found[:, 1:], expected[:, 1:], atol=1e-6)
    else:
        np.testing.assert_allclose(
            np.sort(fitted.neighbours.toarray(), axis=1),
            np.sort(neighbours_by_hand(train, count), axis=1),
            atol=1e-6,
        )
    assert np.isneginf(found[:, 0]).all()


def test_nothing_is_similar_where_nobody_has_two_items() -> None:
    with pytest.raises(InputError, match="no user has two different items"):
        BASELINES["item-knn"].fit(Sequences.of([[1, 1], [2]]), 2)


def test_similar_items_of_item_knn_are_its_neighbours() -> None:
    fitted = BASELINES["item-knn"].fit(Sequences.of([[1, 2], [1, 2, 3], [4]]), 4)
    assert top_k(fitted.similar(1)[None], 2)[0].tolist() == [[2, 3]]
    assert fitted.similar(4).tolist() == [0] * 5
    assert BASELINES["popularity"].fit(Sequences.of([[1, 2]]), 4).similar(1) is None


@given(ROWS, ROWS, st.sampled_from([0.5, 20.0]))
def test_ease_is_the_ridge_regression_of_each_item_on_the_others(train, rows, l2) -> None:
    assume(any(train))
    matrix = had(train)[:, 1:]
    weights = np.zeros((6, 6))
    for item in range(6):
        others = [other for other in range(6) if other != item]
        x, y = matrix[:, others], matrix[:, item]
        weights[others, item] = np.linalg.solve(x.T @ x + l2 * np.eye(5), x.T @ y)
    fitted = BASELINES["ease"].fit(Sequences.of(train), 6, EASEConfig(l2=l2))
    popularity = Sequences.of(train).item_counts(6)[1:]
    tie_break = item_knn.TIE_BREAK * popularity / (popularity.max() + 1)
    expected = had(rows)[:, 1:] @ weights + tie_break
    np.testing.assert_allclose(fitted(Sequences.of(rows))[:, 1:], expected, atol=1e-5)


def test_another_penalty_is_another_model_and_the_same_one_is_kept() -> None:
    train = Sequences.of([[1, 2, 3], [1, 2], [3, 4]])
    fitted = BASELINES["ease"].fit(train, 4, EASEConfig(l2=1.0))
    assert fitted.with_config(EASEConfig(l2=1.0), train) is fitted
    other = fitted.with_config(EASEConfig(l2=9.0), train)
    fresh = BASELINES["ease"].fit(train, 4, EASEConfig(l2=9.0))
    assert torch.equal(other.weights, fresh.weights)
    assert not torch.equal(other.weights, fitted.weights)
