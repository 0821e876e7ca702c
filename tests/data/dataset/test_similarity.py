"""How alike items are, by their features or vectors."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from linrec.data.dataset import similarity
from linrec.data.dataset.similarity import similarity_of


def films() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "item": ["a", "b", "c", "d", "e"],
            "title": ["A", "A", "C", "D", "E"],
            "genre": [["Comedy", "Drama"], ["Comedy"], ["Drama"], ["Horror"], None],
            "maker": ["X", "X", "Y", "Y", None],
            "events": [5, 4, 3, 2, 1],
        }
    )


def test_cosines_by_hand() -> None:
    found = similarity_of(films())
    assert found is not None
    assert found.by == ("genre", "maker")  # neither ids, titles nor counts
    both = np.array([[1, 2, 3, 4, 5]])
    # a has two genres, of which b has one: cosine 1 / sqrt(2); the same maker: 1; halves of both
    half = 2**-0.5 / 2
    assert found.between(both, both)[0] == pytest.approx(
        np.array(
            [
                [1.0, half + 0.5, half, 0.0, 0.0],
                [half + 0.5, 1.0, 0.0, 0.0, 0.0],
                [half, 0.0, 1.0, 2**-0.5, 0.0],  # Horror, of one film, is no value: only its maker
                [0.0, 0.0, 2**-0.5, 1.0, 0.0],
                [0.0, 0.0, 0.0, 0.0, 0.0],  # nothing is known of e
            ]
        ),
        abs=1e-6,
    )


def test_numbers_are_alike_in_one_bucket() -> None:
    years = [1990.0] * 10 + [2020.0] * 10
    found = similarity_of(pl.DataFrame({"item": range(20), "year": years}))
    assert found is not None
    pairs = found.between(np.array([[1]]), np.array([[2, 20]]))
    assert pairs[0, 0].tolist() == [1.0, 0.0]


def test_by_vectors_where_there_are_no_features() -> None:
    vectors = np.array([[0, 0], [3, 4], [0, 2], [0, -1], [0, 0], [1, 0]], np.float64)
    by_features = similarity_of(films(), vectors)
    assert by_features is not None
    assert "item vectors" not in by_features.by
    found = similarity_of(films().select("item", "title", "events"), vectors)
    assert found is not None
    assert found.by == ("item vectors",)
    cosines = found.between(np.array([[1]]), np.array([[2, 3, 4, 5]]))[0, 0]
    assert cosines == pytest.approx([0.8, -0.8, 0.0, 0.6])


def test_nothing_to_compare_by() -> None:
    assert similarity_of(films().select("item", "title", "events")) is None
    assert similarity_of(films().select("item", same=pl.lit("x"))) is None


def test_the_most_common_values_count_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(similarity, "MAX_WIDTH", 1)
    found = similarity_of(pl.DataFrame({"item": range(5), "maker": ["X", "X", "Y", "Y", "Y"]}))
    assert found is not None
    assert found.vectors.shape == (6, 1)
    assert found.vectors[:, 0].tolist() == [0, 0, 0, 1, 1, 1]
