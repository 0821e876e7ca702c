"""The buckets of gaps, worked by hand, and what is unknown."""

from __future__ import annotations

import math

import pytest
import torch

from linrec.layers.time import (
    BUCKETS,
    LONGEST,
    UNKNOWN,
    GapEmbedding,
    gap_buckets,
)

NAN, INF = math.nan, math.inf


def bucket(seconds: float) -> int:
    return int(gap_buckets(torch.tensor([seconds], dtype=torch.float64)))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, 0), (1e-300, 1), (0.5, 1), (1, 1), (1.41, 1), (1.42, 2), (2, 3), (60, 12), (3600, 24),
     (86_400, 33), (2**30, 61), (2**31, LONGEST), (1e300, LONGEST), (INF, LONGEST)],
)  # fmt: skip
def test_buckets_by_hand(seconds, expected) -> None:
    assert bucket(seconds) == expected


@pytest.mark.parametrize("seconds", [-1e-9, -1.0, -1e12, -INF, NAN])
def test_what_says_nothing_is_unknown(seconds) -> None:
    assert bucket(seconds) == UNKNOWN == BUCKETS - 1


def test_the_bucket_is_the_formula() -> None:
    seconds = torch.cat([torch.arange(1, 10_000), torch.tensor([2]) ** torch.arange(31)])
    formula = [min(1 + math.floor(2 * math.log2(s)), LONGEST) for s in seconds.tolist()]
    assert gap_buckets(seconds).tolist() == formula


@pytest.mark.parametrize("power", range(1, 31))
def test_a_power_of_two_begins_a_bucket(power) -> None:
    just_below = math.nextafter(2.0**power, 0)
    assert bucket(2.0**power) == bucket(just_below) + 1 == 1 + 2 * power


def test_integers_and_floats_have_the_same_bucket() -> None:
    seconds = torch.tensor([[0, 7], [1_000_000_000, 3]])
    assert torch.equal(gap_buckets(seconds), gap_buckets(seconds.double()))


def test_an_event_is_the_sum_of_both_gaps() -> None:
    embedding = GapEmbedding(8)
    out = embedding(torch.tensor([[0.0, NAN]]), torch.tensor([[1.0, 2.0]]))
    expected = embedding.previous.weight[[0, UNKNOWN]] + embedding.next.weight[[1, 3]]
    torch.testing.assert_close(out[0], expected)
