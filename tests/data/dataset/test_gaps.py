"""Gaps between events, worked by hand, and what is unknown."""

from __future__ import annotations

import math

import numpy as np
import torch

from linrec.data.dataset.gaps import forget_some, gaps_of, gaps_with_request, read_events
from linrec.data.dataset.sequences import Sequences

NAN = math.nan


def is_unknown(gaps: torch.Tensor) -> list[list[bool]]:
    """Not a length of time: `layers.time` gives such gaps the bucket of the unknown."""
    return (~(gaps >= 0)).tolist()


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
    assert is_unknown(previous) == [[True] * 3]
    assert is_unknown(following) == [[True] * 3]


def test_a_request_before_the_newest_event_is_unknown() -> None:
    _, following = gaps_of(torch.tensor([[10.0]]), torch.tensor([[True]]), torch.tensor([9.0]))
    assert is_unknown(following) == [[True]]


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
    assert gaps_of(times, keep, torch.tensor([3.0]))[1].shape == (1, 2)


def test_a_share_is_forgotten() -> None:
    gaps = np.ones((100, 100))
    share = np.isnan(forget_some(gaps, 0.15, np.random.default_rng(0))).mean()
    assert abs(share - 0.15) < 0.02
    assert np.array_equal(forget_some(gaps, 0.0, np.random.default_rng(0)), gaps)
    assert np.isnan(forget_some(gaps, 1.0, np.random.default_rng(0))).all()


ROWS = Sequences.of([[1, 2, 3], [], [4]], [[5.0, 6.0, 16.0], [], [7.0]], [20.0, 9.0, NAN])


def test_rows_are_read_with_their_gaps() -> None:
    events = read_events(ROWS)
    assert events.items.tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0]]
    assert events.keep.sum(1).tolist() == [3, 0, 1]
    assert events.previous[0, 1:].tolist() == [1, 10]
    assert events.following[0].tolist() == [1, 10, 4]
    assert events.previous[:, 0].isnan().all()
    assert events.following[2, 0].isnan()


def test_the_first_event_read_has_no_previous_one() -> None:
    """Whether the history was cut or begins there: windows and short histories are alike."""
    events = read_events(ROWS.last(2))
    assert events.items[0].tolist() == [2, 3]
    assert events.previous[0, 0].isnan()
    assert events.previous[0, 1] == 10


def test_rows_without_times_have_no_gaps() -> None:
    assert read_events(ROWS.without_times()).gaps is None
    assert gaps_with_request(ROWS.without_times()) is None


def test_the_request_stands_after_the_newest_event() -> None:
    previous, following = gaps_with_request(ROWS)
    assert previous.shape == (3, 4)
    assert previous[0, 1:].tolist() == [1, 10, 4]
    assert following[0, :3].tolist() == [1, 10, 4]
    assert following[0, 3].isnan()
    assert previous[2, :2].isnan().all()


def test_some_rows_keep_their_times() -> None:
    some = ROWS.take(np.array([2, 0]))
    assert some.until[1] == 20
    assert some.padded_times()[1].tolist() == [5, 6, 16]
    assert np.isnan(some.padded_times()[0, 1:]).all()


def test_a_row_before_an_event_is_open_until_it() -> None:
    before = ROWS.take(slice(1)).before(np.array([2]))
    assert before[0].tolist() == [1, 2]
    assert before.until[0] == 16
