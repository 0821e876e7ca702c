"""Windows and batches: every target once, nothing invented, little padding."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linrec.data.dataset.batches import (
    Masking,
    TrainingBatches,
    all_position_batches,
    bucketed,
    cloze_batches,
    last_position_batches,
    prefixes,
    windows,
)
from linrec.data.dataset.seen import SeenIndex
from linrec.data.dataset.sequences import Sequences
from linrec.types import PAD, SequenceBatch

LENGTHS = st.lists(st.integers(0, 60), max_size=12)
WINDOWS = st.integers(1, 70)
SEEDS = st.integers(0, 2**31)
RATIOS = st.one_of(st.sampled_from([0.0, 0.2, 0.5]), st.floats(0, 0.999))
MASK = 10_000  # an index that no event has


def numbered(lengths: list[int]) -> Sequences:
    """Item numbers that no other event has, to identify each event."""
    ends = np.cumsum(lengths)
    return Sequences.of(
        [list(range(end - n + 1, end + 1)) for n, end in zip(lengths, ends, strict=True)]
    )


def targets_of(train: Sequences) -> list[int]:
    """Every event but each row's first."""
    return sorted(int(item) for row in range(len(train)) for item in train[row][1:])


@given(lengths=LENGTHS, window=WINDOWS, seed=SEEDS, cut_all=st.booleans())
def test_windows_cover_every_target_once(lengths, window, seed, cut_all) -> None:
    train = numbered(lengths)
    inputs = windows(train, window, np.random.default_rng(seed), cut_all=cut_all)
    covered = [int(item) + 1 for row in range(len(inputs)) for item in inputs[row]]
    assert sorted(covered) == targets_of(train)
    assert (inputs.lengths >= 1).all()
    assert (inputs.lengths <= window).all()
    # as few as can be, and one more where the first piece has a random size
    inputs_of = [n - 1 for n in lengths if n > 1]
    minimum = sum(-(-n // window) for n in inputs_of)
    cut = sum(n > (1 if cut_all else window) for n in inputs_of)
    assert minimum <= len(inputs) <= minimum + cut


def test_a_long_row_is_cut_elsewhere_each_time() -> None:
    train, rng = numbered([100]), np.random.default_rng(0)
    firsts = Counter(windows(train, 30, rng).lengths[0] for _ in range(300))
    assert set(firsts) == set(range(1, 31))
    assert {len(windows(numbered([30]), 30, rng)) for _ in range(20)} == {1}


def test_a_short_row_is_cut_anywhere_when_all_are() -> None:
    train, rng = numbered([9, 2, 1]), np.random.default_rng(0)
    every = [windows(train, 30, rng, cut_all=True) for _ in range(300)]
    assert {int(inputs.lengths[0]) for inputs in every} == set(range(1, 9))
    # the event after a piece is any but the first, and the last of the row each time
    after = Counter(int(end) + 1 for inputs in every for end in inputs.ends)
    assert set(after) == {*range(2, 10), 11}
    assert after[9] == after[11] == 300


@given(lengths=LENGTHS, window=WINDOWS, tokens=st.integers(1, 300), seed=SEEDS)
def test_all_position_batches_ask_for_the_next_item(lengths, window, tokens, seed) -> None:
    train = numbered(lengths)
    batches = all_position_batches(
        train, window=window, tokens=tokens, rng=np.random.default_rng(seed)
    )
    targets: list[int] = []
    for batch in batches:
        assert batch.items.shape == batch.keep.shape == batch.targets.shape
        assert batch.items.dtype == batch.targets.dtype == torch.int64
        assert torch.equal(batch.keep, batch.items != PAD)
        assert torch.equal(batch.targets, torch.where(batch.keep, batch.items + 1, PAD))
        assert batch.keep.any(0).all()  # padded to the longest, not further
        assert (batch.keep[:, 1:] <= batch.keep[:, :-1]).all()
        targets += batch.targets[batch.keep].tolist()
    assert sorted(targets) == targets_of(train)
    assert batches.n_targets == len(targets)
    assert len(batches) == len(batches.rows)


@settings(max_examples=40)
@given(lengths=LENGTHS, window=WINDOWS, tokens=st.integers(1, 300), seed=SEEDS)
def test_last_position_batches_have_a_row_for_each_target(lengths, window, tokens, seed) -> None:
    train = numbered(lengths)
    batches = last_position_batches(
        train, window=window, tokens=tokens, rng=np.random.default_rng(seed)
    )
    begin = {int(item): int(train[row][0]) for row in range(len(train)) for item in train[row]}
    covered: list[int] = []
    for batch in batches:
        assert ((batch.targets != PAD).sum(1) == 1).all()
        for items, targets in zip(batch.items, batch.targets, strict=True):
            target = int(targets.max())
            seen = items[items != PAD].tolist()
            assert seen == list(range(max(begin[target], target - window), target))
            assert int(targets[len(seen) - 1]) == target
            covered.append(target)
    assert sorted(covered) == targets_of(train)
    assert batches.n_targets == len(covered)


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


def cloze(
    train: Sequences, ratio: float, *, window: int, seed: int = 0, cut_all: bool = False
) -> TrainingBatches:
    rng = np.random.default_rng(seed)
    rows = windows(train, window, rng, cut_all=cut_all)
    return cloze_batches(rows, Masking(MASK, ratio), tokens=200, rng=rng)


def unmasked(batch: SequenceBatch) -> list[list[int]]:
    """The events of each row as they were, without padding."""
    items = torch.where(batch.items == MASK, batch.targets, batch.items)
    return [row[kept].tolist() for row, kept in zip(items, batch.keep, strict=True)]


def check_masks(batch: SequenceBatch, ratio: float) -> None:
    masked = batch.items == MASK
    assert batch.items.shape == batch.keep.shape == batch.targets.shape
    assert torch.equal(masked, batch.targets != PAD)  # the targets are exactly the masked events
    assert torch.equal(batch.keep, batch.items != PAD)
    assert (batch.keep[:, 1:] <= batch.keep[:, :-1]).all()  # padding is at the end, never masked
    assert batch.keep.any(0).all()
    for row, hidden in enumerate(masked):
        length = int(batch.keep[row].sum()) - 1  # of the events before the next one
        assert hidden[length]
        assert int(hidden[:length].sum()) == round(ratio * length)


@given(lengths=LENGTHS, window=WINDOWS, ratio=RATIOS, seed=SEEDS, cut_all=st.booleans())
def test_cloze_masks_the_next_event_and_some_before(lengths, window, ratio, seed, cut_all) -> None:
    train = numbered(lengths)
    batches = cloze(train, ratio, window=window, seed=seed, cut_all=cut_all)
    n_targets, following = 0, []
    for batch in batches:
        check_masks(batch, ratio)
        n_targets += int((batch.targets != PAD).sum())
        for row in unmasked(batch):
            assert row == list(range(row[0], row[0] + len(row)))  # nothing moved or lost
            assert 2 <= len(row) <= window + 1
            following += row[1:]
    assert sorted(following) == targets_of(train)  # each comes after something once an epoch
    assert batches.n_targets == n_targets


@settings(max_examples=40)
@given(lengths=LENGTHS, window=WINDOWS, ratio=RATIOS, seed=SEEDS)
def test_cloze_over_prefixes_asks_for_every_target_as_the_next(
    lengths, window, ratio, seed
) -> None:
    train, rng = numbered(lengths), np.random.default_rng(seed)
    batches = cloze_batches(prefixes(train, window), Masking(MASK, ratio), tokens=200, rng=rng)
    following = []
    for batch in batches:
        check_masks(batch, ratio)
        following += [row[-1] for row in unmasked(batch)]
    assert sorted(following) == targets_of(train)


def test_cloze_over_windows_ends_each_window_with_the_next() -> None:
    """The next events of one epoch: the last of each row, and every window's end."""
    train = numbered([25, 1, 9])
    ends = sorted(row[-1] for batch in cloze(train, 0.2, window=8) for row in unmasked(batch))
    assert {25, 35} <= set(ends)
    assert len(ends) == len(set(ends))


def test_a_ratio_of_zero_masks_the_next_alone() -> None:
    batches = cloze(numbered([5, 90, 2, 33]), 0.0, window=20)
    for batch in batches:
        assert ((batch.items == MASK).sum(1) == 1).all()
    assert batches.n_targets == len(batches.inputs)


@pytest.mark.parametrize(("ratio", "hidden"), [(0.2, 0), (0.9, 1)])
def test_rows_of_one_event(ratio: float, hidden: int) -> None:
    """One event and the one after it; users of a single event have nothing to ask."""
    (batch,) = cloze(numbered([2, 1, 2, 0]), ratio, window=8)
    assert sorted(unmasked(batch)) == [[1, 2], [4, 5]]
    assert (batch.items[:, 1] == MASK).all()
    assert (batch.items[:, 0] == MASK).sum() == 2 * hidden


def test_every_event_is_masked_about_as_often() -> None:
    counts = np.zeros(20)
    for seed in range(200):
        (batch,) = cloze(numbered([21]), 0.3, window=30, seed=seed)
        counts += (batch.items[0, :20] == MASK).numpy()
    assert counts.sum() == 200 * 6
    assert counts.min() > 30  # 60 on average, 6.5 the standard deviation
    assert counts.max() < 90


@pytest.mark.parametrize("ratio", [0.0, 0.4])
def test_the_same_index_is_the_same_batch(ratio: float) -> None:
    """However often and in whatever order it is read: a resumed run starts in the middle."""
    batches = cloze(numbered([5, 90, 33, 2, 60]), ratio, window=20)
    first = list(batches)
    assert len(first) == len(batches) > 1
    for index in [*reversed(range(len(batches))), *range(len(batches))]:
        for again, once in zip(batches[index], first[index], strict=True):
            torch.testing.assert_close(again, once, rtol=0, atol=0, equal_nan=True)


def test_each_epoch_masks_other_events() -> None:
    train, rng = numbered([19]), np.random.default_rng(0)

    def masks() -> list[bool]:
        (batch,) = cloze_batches(windows(train, 20, rng), Masking(MASK, 0.5), tokens=99, rng=rng)
        return (batch.items[0] == MASK).tolist()

    epochs = [tuple(masks()) for _ in range(10)]
    assert len(set(epochs)) == 10


def test_batches_of_one_epoch_are_masked_apart() -> None:
    """Rows of one length in different batches: the draws of one are not those of the next."""
    rng = np.random.default_rng(0)
    rows = windows(numbered([19] * 10), 20, rng)
    batches = cloze_batches(rows, Masking(MASK, 0.5), tokens=20, rng=rng)
    assert len(batches) == 10
    assert len({tuple((batch.items[0] == MASK).tolist()) for batch in batches}) == 10


def cloze_epoch(
    train: Sequences, *, window: int, tokens: int, rng: np.random.Generator
) -> TrainingBatches:
    return cloze_batches(windows(train, window, rng), Masking(MASK, 0.3), tokens=tokens, rng=rng)


@pytest.mark.parametrize("make", [all_position_batches, last_position_batches, cloze_epoch])
def test_the_same_rng_makes_the_same_batches(make) -> None:
    train = numbered([5, 90, 33, 2, 60])

    def epoch(rng: np.random.Generator) -> list[list[list[int]]]:
        return [batch.items.tolist() for batch in make(train, window=20, tokens=100, rng=rng)]

    assert epoch(np.random.default_rng(3)) == epoch(np.random.default_rng(3))
    rng = np.random.default_rng(3)
    assert epoch(rng) != epoch(rng)  # another epoch is another order


@pytest.mark.parametrize("window", [3, 100])
@pytest.mark.parametrize("make", [all_position_batches, last_position_batches, cloze_epoch])
def test_what_was_seen_before_each_target(make, window: int) -> None:
    """In the whole history and not only in the window; items repeat from the eleventh on."""
    train = numbered([5, 30, 13, 2, 21])
    repeated = Sequences((train.items - 1) % 10 + 1, train.starts, train.ends)
    rng = [np.random.default_rng(4) for _ in range(2)]
    batches = make(train, window=window, tokens=40, rng=rng[0])
    same = make(repeated, window=window, tokens=40, rng=rng[1]).with_seen(SeenIndex.of(repeated))
    for events, batch in zip(batches, same, strict=True):
        targets = events.targets[events.targets != PAD].tolist()  # the number of each event
        assert len(targets) == len(batch.seen.starts) == len(batch.seen.counts)
        for target, start, count in zip(targets, *batch.seen[1:3], strict=True):
            row = np.searchsorted(train.starts, target - 1, side="right") - 1
            past = {(item - 1) % 10 + 1 for item in range(train.starts[row] + 1, target)}
            listed = batch.seen.items[start : start + count].tolist()
            assert len(listed) == len(past)
            assert set(listed) == past
