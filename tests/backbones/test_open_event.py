"""However a history is cut into appends, the same events are closed with the same gaps."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linrec.backbones.open_event import OpenEvent
from linrec.data.dataset.gaps import gaps_of
from linrec.types import PAD, Events

Closed = list[tuple[int, float, float]]
REQUEST = 1_000.0


def rows_of(events: Events) -> list[Closed]:
    """The real events of each row: item, seconds before, seconds after."""
    return [
        [
            (int(item), before, after)
            for item, kept, before, after in zip(
                *(part[row].tolist() for part in events[:4]), strict=True
            )
            if kept
        ]
        for row in range(len(events.items))
    ]


def whole(items: list[int], times: list[float]) -> Closed:
    """All at once, the newest closed by the request."""
    clock = torch.tensor([times], dtype=torch.float64)
    keep = torch.ones(1, len(items), dtype=torch.bool)
    previous, following = gaps_of(clock, keep, torch.tensor([REQUEST]))
    return list(zip(items, previous[0].tolist(), following[0].tolist(), strict=True))


def padded(rows: list[list[float]], fill: float, dtype: torch.dtype) -> torch.Tensor:
    longest = max(1, *map(len, rows))
    return torch.tensor([row + [fill] * (longest - len(row)) for row in rows], dtype=dtype)


def same(found: Closed, right: Closed) -> bool:
    numbers = [[x for event in events for x in event] for events in (found, right)]
    return len(found) == len(right) and all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(*numbers, strict=True)
    )


history = st.lists(
    st.tuples(st.integers(1, 9), st.sampled_from([0.0, 3.0, 3.0, 70.0, 2.0, math.nan])), max_size=7
)


@given(histories=st.lists(history, min_size=1, max_size=3), cuts=st.lists(st.integers(0, 3)))
def test_cut_anywhere_the_same_events_are_closed(histories, cuts) -> None:
    """Rows of different lengths, equal, missing and backward times, and appends of nothing."""
    left = [list(events) for events in histories]
    opened, closed = OpenEvent.none(len(left)), [[] for _ in left]
    for size in [*cuts, 99]:
        now, left = [row[:size] for row in left], [row[size:] for row in left]
        items = padded([[item for item, _ in row] for row in now], PAD, torch.int64)
        times = padded([[time for _, time in row] for row in now], 0.0, torch.float64)
        events, opened = opened.followed_by(items, times)
        assert events.items.shape == items.shape
        closed = [a + b for a, b in zip(closed, rows_of(events), strict=True)]
    requested = rows_of(opened.at(torch.full((len(left),), REQUEST)))
    for events, found, newest in zip(histories, closed, requested, strict=True):
        items, times = [item for item, _ in events], [time for _, time in events]
        assert same(found + newest, whole(items, times) if items else [])


def test_a_request_changes_nothing() -> None:
    _, opened = OpenEvent.none(1).followed_by(torch.tensor([[4]]), torch.tensor([[10.0]]))
    before = opened.item.item(), opened.time.item()
    assert opened.at(torch.tensor([25.0])).following.item() == 15
    assert opened.at(torch.tensor([11.0])).following.item() == 1
    assert (opened.item.item(), opened.time.item()) == before


@pytest.mark.parametrize("request_time", [math.nan, 9.0])
def test_a_request_without_a_time_or_before_the_event_has_no_gap(request_time) -> None:
    _, opened = OpenEvent.none(1).followed_by(torch.tensor([[4]]), torch.tensor([[10.0]]))
    assert not opened.at(torch.tensor([request_time])).following.item() >= 0


def test_one_event_closes_one_event() -> None:
    """So an append costs one step, whatever the history."""
    opened = OpenEvent.none(2)
    for step in range(3):
        events, opened = opened.followed_by(
            torch.tensor([[step + 1], [step + 5]]), torch.full((2, 1), 10.0 * step)
        )
        assert events.items.tolist() == ([[PAD], [PAD]] if step == 0 else [[step], [step + 4]])
