"""Windows and batches: every target once, nothing invented, little padding."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linrec.data.batches import (
    all_position_batches,
    bucketed,
    last_position_batches,
    windows,
)
from linrec.data.sequences import Sequences
from linrec.types import PAD

LENGTHS = st.lists(st.integers(0, 60), max_size=12)
WINDOWS = st.integers(1, 70)
SEEDS = st.integers(0, 2**31)


def numbered(lengths: list[int]) -> Sequences:
    """Item numbers that no other event has, so that each event can be told."""
    ends = np.cumsum(lengths)
    return Sequences.of(
        [list(range(end - n + 1, end + 1)) for n, end in zip(lengths, ends, strict=True)]
    )


def targets_of(train: Sequences) -> list[int]:
    """Every event but each row's first."""
    return sorted(int(item) for row in range(len(train)) for item in train[row][1:])


@given(lengths=LENGTHS, window=WINDOWS, seed=SEEDS)
def test_windows_cover_every_target_once(lengths, window, seed) -> None:
    train = numbered(lengths)
    inputs = windows(train, window, np.random.default_rng(seed))
    covered = [int(item) + 1 for row in range(len(inputs)) for item in inputs[row]]
    assert sorted(covered) == targets_of(train)
    assert (inputs.lengths >= 1).all()
    assert (inputs.lengths <= window).all()
    # as few as can be, and one more for the first piece of random size
    fewest = [-(-(n - 1) // window) for n in lengths if n > 1]
    assert sum(fewest) <= len(inputs) <= sum(n + (n > 1) for n in fewest)


def test_a_long_row_is_cut_elsewhere_each_time() -> None:
    train, rng = numbered([100]), np.random.default_rng(0)
    firsts = Counter(windows(train, 30, rng).lengths[0] for _ in range(300))
    assert set(firsts) == set(range(1, 31))
    assert {len(windows(numbered([30]), 30, rng)) for _ in range(20)} == {1}


@given(lengths=LENGTHS, window=WINDOWS, tokens=st.integers(1, 300), seed=SEEDS)
def test_all_position_batches_ask_for_the_next_item(lengths, window, tokens, seed) -> None:
    train = numbered(lengths)
    batches = all_position_batches(
        train, window=window, tokens=tokens, rng=np.random.default_rng(seed)
    )
    asked: list[int] = []
    for batch in batches:
        assert batch.items.shape == batch.keep.shape == batch.targets.shape
        assert batch.items.dtype == batch.targets.dtype == torch.int64
        assert torch.equal(batch.keep, batch.items != PAD)
        assert torch.equal(batch.targets, torch.where(batch.keep, batch.items + 1, PAD))
        assert batch.keep.any(0).all()  # padded to the longest, not further
        assert (batch.keep[:, 1:] <= batch.keep[:, :-1]).all()
        asked += batch.targets[batch.keep].tolist()
    assert sorted(asked) == targets_of(train)
    assert batches.n_targets == len(asked)
    assert len(batches) == len(batches.rows)


@settings(max_examples=40)
@given(lengths=LENGTHS, window=WINDOWS, tokens=st.integers(1, 300), seed=SEEDS)
def test_last_position_batches_have_a_row_for_each_target(lengths, window, tokens, seed) -> None:
    train = numbered(lengths)
    batches = last_position_batches(
        train, window=window, tokens=tokens, rng=np.random.default_rng(seed)
    )
    begin = {int(item): int(train[row][0]) for row in range(len(train)) for item in train[row]}
    asked: list[int] = []
    for batch in batches:
        assert ((batch.targets != PAD).sum(1) == 1).all()
        for items, targets in zip(batch.items, batch.targets, strict=True):
            target = int(targets.max())
            seen = items[items != PAD].tolist()
            assert seen == list(range(max(begin[target], target - window), target))
            assert int(targets[len(seen) - 1]) == target
            asked.append(target)
    assert sorted(asked) == targets_of(train)
    assert batches.n_targets == len(asked)


@given(lengths=st.lists(st.integers(1, 100), max_size=60), tokens=st.integers(1, 500), seed=SEEDS)
def test_buckets_hold_each_row_once_within_the_budget(lengths, tokens, seed) -> None:
    lengths = np.array(lengths, dtype=np.int64)
    batches = bucketed(lengths, tokens, np.random.default_rng(seed))
    rows = np.concatenate([*batches, np.empty(0, np.int64)])
    assert sorted(rows.tolist()) == list(range(len(lengths)))
    for batch in batches:
        # a row longer than the budget still has to go somewhere: alone
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= tokens


def test_little_of_a_batch_is_padding() -> None:
    """Lengths as in a real log: log-normal, from a few events to the window."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(4.5, 1.0, 3_000), 2, 2_048).astype(np.int64)
    batches = bucketed(lengths, 8_192, rng)
    held = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert lengths.sum() / held > 0.85
    assert held / len(batches) > 0.7 * 8_192  # and the budget is used


def test_the_batches_come_in_any_order_of_length() -> None:
    lengths = np.arange(1, 400)
    longest = [lengths[batch].max() for batch in bucketed(lengths, 400, np.random.default_rng(0))]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


@pytest.mark.parametrize("make", [all_position_batches, last_position_batches])
def test_the_same_rng_makes_the_same_batches(make) -> None:
    train = numbered([5, 90, 33, 2, 60])

    def epoch(rng: np.random.Generator) -> list[list[list[int]]]:
        return [batch.items.tolist() for batch in make(train, window=20, tokens=100, rng=rng)]

    assert epoch(np.random.default_rng(3)) == epoch(np.random.default_rng(3))
    rng = np.random.default_rng(3)
    assert epoch(rng) != epoch(rng)  # another epoch is another order
