"""Counts of past items: three ways to compute them, and the formula itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linrec.data.dataset.half_lives import IN_EVENTS, IN_SECONDS, half_lives
from linrec.data.dataset.past_counts import ItemCounts, counts_of, counts_of_users
from linrec.data.dataset.repeat_index import RepeatIndex
from linrec.data.dataset.sequences import Sequences
from linrec.layers.repeats import pairs_of
from linrec.types import PastCounts

HISTORIES = st.lists(
    st.lists(
        st.tuples(
            st.integers(1, 5),
            st.one_of(st.just(math.nan), st.floats(0, 4e7), st.integers(0, 3).map(float)),
        ),
        max_size=25,
    ),
    min_size=1,
    max_size=4,
)


def slow(items: list[int], times: list[float] | None, at: float) -> dict[int, list[float]]:
    """1 and log(1 + count) for each item of one history, event by event and rate by rate."""
    features: dict[int, list[float]] = {}
    known = [time for time in times or [] if not math.isnan(time)]
    request = max([*known, *([] if math.isnan(at) else [at])], default=math.nan)
    for item in set(items):
        counts = []
        for half in IN_EVENTS:
            ages = [len(items) - 1 - n for n, each in enumerate(items) if each == item]
            counts.append(sum(0.5 ** (age / half) for age in ages))
        for half in IN_SECONDS if times is not None else ():
            ages = [request - t for t, each in zip(times, items, strict=True) if each == item]
            counts.append(sum(0.5 ** (age / half) for age in ages if not math.isnan(age)))
        features[item] = [1.0, *(math.log1p(count) for count in counts)]
    return features


def read(past: PastCounts, rows: int) -> list[dict[int, list[float]]]:
    found: list[dict[int, list[float]]] = [{} for _ in range(rows)]
    pairs = pairs_of(past)
    parts = (pairs.rows, pairs.items, pairs.features())
    for row, item, features in zip(*(part.tolist() for part in parts), strict=True):
        assert item not in found[row], "each item once"
        found[row][item] = features
    return found


def assert_same(found: dict[int, list[float]], right: dict[int, list[float]]) -> None:
    assert found.keys() == right.keys()
    for item, features in right.items():
        np.testing.assert_allclose(found[item], features, rtol=2e-5, atol=2e-6)


@settings(max_examples=40, deadline=None)
@given(histories=HISTORIES, at=st.one_of(st.just(math.nan), st.floats(0, 8e7)))
def test_whole_histories_have_the_counts_of_the_formula(histories, at) -> None:
    items = [[item for item, _ in row] for row in histories]
    times = [[time for _, time in row] for row in histories]
    sequences = Sequences.of(items, times, [at] * len(items))
    for timed in (False, True):
        found = read(counts_of(sequences, timed), len(items))
        for mine, row, clock in zip(found, items, times, strict=True):
            assert_same(mine, slow(row, clock if timed else None, at))


@settings(max_examples=40, deadline=None)
@given(histories=HISTORIES, at=st.one_of(st.just(math.nan), st.floats(0, 8e7)), data=st.data())
def test_event_by_event_they_are_the_same_wherever_the_history_is_cut(histories, at, data) -> None:
    """Unknown, equal and decreasing times included."""
    for timed in (False, True):
        users = []
        for row in histories:
            items = np.array([item for item, _ in row], np.int64)
            times = np.array([time for _, time in row], float)
            cut = data.draw(st.integers(0, len(row)))
            user = ItemCounts.none(timed).after(items[:cut], times[:cut])
            users.append(user.after(items[cut:], times[cut:]))
        found = read(counts_of_users(users, [at] * len(users)), len(users))
        for mine, row in zip(found, histories, strict=True):
            clock = [time for _, time in row] if timed else None
            assert_same(mine, slow([item for item, _ in row], clock, at))


def training_rows(lengths: tuple[int, ...], *, timed: bool, items: int = 6) -> Sequences:
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, items + 1, n).tolist() for n in lengths]
    clock = [np.cumsum(np.floor(np.exp(rng.uniform(-1, 14, n)))).tolist() for n in lengths]
    return Sequences.of(rows, clock if timed else None)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("lengths", [(2,), (1, 2, 30, 7, 13), (65, 64, 63)])
def test_before_each_event_of_a_training_they_are_those_of_the_history_so_far(
    lengths, timed
) -> None:
    rows = training_rows(lengths, timed=timed)
    events = np.concatenate(
        [np.arange(s + 1, e) for s, e in zip(rows.starts, rows.ends, strict=True)]
    )
    rng = np.random.default_rng(1)
    events = rng.permutation(events)[: max(1, 2 * len(events) // 3)]  # some of them, in any order
    unknown = rng.random(len(events)) < 0.3
    found = read(RepeatIndex.of(rows).before(events, unknown), len(events))
    for mine, event, no_time in zip(found, events.tolist(), unknown, strict=True):
        start = int(rows.starts[rows.starts <= event].max())
        items = rows.items[start:event].tolist()
        clock = None if rows.times is None else rows.times[start:event].tolist()
        at = math.nan if rows.times is None or no_time else float(rows.times[event])
        assert_same(mine, slow(items, clock, at))


def test_rows_may_leave_out_events_between_them() -> None:
    """The training rows of a split: what is held out belongs to no row."""
    items = np.array([3, 1, 3, 9, 9, 2, 2, 1, 9, 9], dtype=np.int32)
    rows = Sequences(items, np.array([0, 5]), np.array([3, 8]))
    past = RepeatIndex.of(rows).before(np.array([2, 7]), np.ones(2, bool))
    found = read(past, 2)
    assert_same(found[0], slow([3, 1], None, math.nan))
    assert_same(found[1], slow([2, 2], None, math.nan))
    assert past.seen is not None
    assert past.seen.counts.tolist() == past.counts.tolist() == [2, 1]


def test_an_item_of_every_day_for_years_stays_exact() -> None:
    """A long chain, in which an early event is worth nothing at a short half-life."""
    days = 3_000
    rows = Sequences.of([[1, 2] * days], [np.repeat(np.arange(days) * 86_400.0, 2).tolist()])
    past = RepeatIndex.of(rows).before(np.array([2 * days - 1]), np.ones(1, bool))
    right = slow([1, 2] * (days - 1) + [1], rows.times[: 2 * days - 1].tolist(), math.nan)
    assert_same(read(past, 1)[0], right)


def test_a_chunk_of_targets_has_its_part_of_the_pairs() -> None:
    rows = training_rows((20, 11), timed=True)
    events = np.r_[1:20, 21:31]
    past = RepeatIndex.of(rows).before(events, np.zeros(len(events), bool))
    whole = pairs_of(past)
    parts = [pairs_of(past, begin, begin + 7) for begin in range(0, len(events), 7)]
    rows = [part.rows + 7 * index for index, part in enumerate(parts)]
    assert torch.equal(whole.rows, torch.cat(rows))
    assert torch.equal(whole.items, torch.cat([part.items for part in parts]))
    assert torch.equal(whole.features(), torch.cat([part.features() for part in parts]))


def test_a_user_without_a_past_has_no_counts() -> None:
    nobody = ItemCounts.none(timed=True)
    assert nobody.sums.shape == (0, half_lives(timed=True))
    assert len(pairs_of(counts_of_users([nobody], [math.nan])).rows) == 0
    assert len(pairs_of(counts_of(Sequences.of([[]], [[]]), timed=True)).rows) == 0
