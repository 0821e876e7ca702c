"""Gaps between events: their buckets, worked by hand, and what is unknown."""

from __future__ import annotations

import math

import pytest
import torch

from linrec.layers.time import (
    BUCKETS,
    LONGEST,
    UNKNOWN,
    GapEmbedding,
    forget_some,
    gap_buckets,
    gaps_of,
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


def test_gaps_by_hand() -> None:
    times = torch.tensor([[10.0, 10.0, 40.0], [7.0, 9.0, 0.0]])
    keep = torch.tensor([[True, True, True], [True, True, False]])
    previous, following = gaps_of(times, keep, torch.tensor([100.0, 20.0]))
    assert previous[0].isnan().tolist() == [True, False, False]
    assert previous[0, 1:].tolist() == [0, 30]
    assert following[0].tolist() == [0, 30, 60]
    assert previous[1, 1] == 2
    assert following[1, :2].tolist() == [2, 11]


def test_a_missing_time_and_a_missing_request_are_unknown() -> None:
    times = torch.tensor([[10.0, NAN, 40.0]])
    previous, following = gaps_of(times, torch.ones(1, 3, dtype=torch.bool), torch.tensor([NAN]))
    assert gap_buckets(previous).tolist() == [[UNKNOWN] * 3]
    assert gap_buckets(following).tolist() == [[UNKNOWN] * 3]


def test_a_request_before_the_newest_event_is_unknown() -> None:
    _, following = gaps_of(torch.tensor([[10.0]]), torch.tensor([[True]]), torch.tensor([9.0]))
    assert gap_buckets(following).item() == UNKNOWN


def test_cut_anywhere_the_gaps_are_the_same() -> None:
    times = torch.tensor([[5.0, 5.0, 9.0, 30.0, 2.0, 80.0]])
    keep, request = torch.ones(1, 6, dtype=torch.bool), torch.tensor([90.0])
    whole = gaps_of(times, keep, request)
    for cut in range(1, 6):
        head = gaps_of(times[:, :cut], keep[:, :cut], times[:, cut])
        tail = gaps_of(times[:, cut:], keep[:, cut:], request, before=times[:, cut - 1])
        for parts, right in zip(zip(head, tail, strict=True), whole, strict=True):
            torch.testing.assert_close(torch.cat(parts, 1), right, rtol=0, atol=0, equal_nan=True)


def test_gaps_of_real_clocks_lose_no_second() -> None:
    """Seconds since 1970 have more digits than float32 holds."""
    times = torch.tensor([[1_763_424_000.0, 1_763_424_001.0]], dtype=torch.float64)
    previous, _ = gaps_of(times, torch.ones(1, 2, dtype=torch.bool), times[:, 1])
    assert previous[0, 1] == 1


def test_a_row_without_events_is_no_error() -> None:
    times, keep = torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool)
    assert gap_buckets(gaps_of(times, keep, torch.tensor([3.0]))[1]).shape == (1, 2)


def test_a_share_is_forgotten() -> None:
    torch.manual_seed(0)
    gaps = torch.ones(100, 100)
    assert abs(forget_some(gaps, 0.15).isnan().float().mean() - 0.15) < 0.02
    assert torch.equal(forget_some(gaps, 0.0), gaps)
    assert forget_some(gaps, 1.0).isnan().all()


def test_an_event_is_the_sum_of_both_gaps() -> None:
    embedding = GapEmbedding(8)
    out = embedding(torch.tensor([[0.0, NAN]]), torch.tensor([[1.0, 2.0]]))
    expected = embedding.previous.weight[[0, UNKNOWN]] + embedding.next.weight[[1, 3]]
    torch.testing.assert_close(out[0], expected)
