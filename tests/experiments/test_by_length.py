"""Figures by the length of the history: every user counts once, however many targets they have."""

from __future__ import annotations

import polars as pl
import pytest

from experiments.training import LONG_LENGTHS, by_length


def test_a_user_with_a_basket_counts_once() -> None:
    ranks = pl.DataFrame(
        {"user": [1, 1, 2, 3], "history_length": [3, 3, 40, 1_500], "rank": [0, 99, 1, 0]}
    )
    short, long = by_length(ranks, LONG_LENGTHS)
    assert (short["from"], short["to"], short["users"]) == (0, 50, 2)
    assert (long["from"], long["to"], long["users"]) == (1_000, 2_000, 1)
    # half of the basket was found, and the target of the second user
    assert short["recall@10"] == pytest.approx((0.5 + 1.0) / 2)
    assert long["ndcg@10"] == 1.0


def test_one_target_each_gives_plain_means() -> None:
    ranks = pl.DataFrame({"user": [1, 2], "history_length": [60, 70], "rank": [0, 10]})
    (group,) = by_length(ranks)
    assert (group["users"], group["recall@10"]) == (2, 0.5)
