"""From sequences to padded batches: windows over long histories, bucketed by length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from linrec.data.sequences import IntArray, Sequences
from linrec.types import PAD, SequenceBatch

# batches of similar, not equal, lengths: the jitter lets a sequence meet others from epoch to epoch
LENGTH_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class TrainingBatches:
    """The batches of one epoch, each built when it is asked for."""

    inputs: Sequences  # what the encoder reads; the target of each event is the one after it
    rows: list[IntArray]  # of each batch
    only_last: bool  # whether the last position alone has a target

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_targets(self) -> int:
        return len(self.inputs) if self.only_last else int(self.inputs.lengths.sum())

    def __getitem__(self, index: int) -> SequenceBatch:
        chosen = self.inputs.take(self.rows[index])
        items = torch.from_numpy(chosen.padded())
        if self.only_last:
            targets = np.full(items.shape, PAD)
            last = chosen.lengths - 1
            targets[np.arange(len(chosen)), last] = chosen.items[chosen.ends]
        else:
            targets = Sequences(chosen.items, chosen.starts + 1, chosen.ends + 1).padded()
        return SequenceBatch(items, items != PAD, torch.from_numpy(targets))

    def __iter__(self) -> Iterator[SequenceBatch]:
        return (self[index] for index in range(len(self)))


def all_position_batches(
    train: Sequences, *, window: int, tokens: int, rng: np.random.Generator
) -> TrainingBatches:
    """Windows of at most `window` events that together cover every target exactly once."""
    inputs = windows(train, window, rng)
    return TrainingBatches(inputs, bucketed(inputs.lengths, tokens, rng), only_last=False)


def last_position_batches(
    train: Sequences, *, window: int, tokens: int, rng: np.random.Generator
) -> TrainingBatches:
    """One row a target, its history cut to the last `window` events: the paper's way."""
    targets = np.maximum(train.lengths - 1, 0)
    starts = np.repeat(train.starts, targets)
    ends = starts + _count_up(targets) + 1
    inputs = Sequences(train.items, starts, ends).last(window)
    return TrainingBatches(inputs, bucketed(inputs.lengths, tokens, rng), only_last=True)


def windows(train: Sequences, window: int, rng: np.random.Generator) -> Sequences:
    """Cut each row's inputs into windows; where a long row is cut changes from call to call.

    The first piece of a row longer than `window` has a random size, so that over the epochs every
    target is met with little and with much context before it.
    """
    inputs = np.maximum(train.lengths - 1, 0)  # the last event is a target only
    first = np.where(inputs > window, rng.integers(1, window + 1, len(train)), inputs)
    pieces = np.where(inputs > 0, 1 + -(-(inputs - first) // window), 0)
    row = np.repeat(np.arange(len(train)), pieces)
    piece = _count_up(pieces)
    starts = train.starts[row] + np.where(piece > 0, first[row] + (piece - 1) * window, 0)
    length = np.where(piece > 0, window, first[row])
    ends = np.minimum(starts + length, train.starts[row] + inputs[row])
    return Sequences(train.items, starts, ends)


def bucketed(lengths: IntArray, tokens: int, rng: np.random.Generator) -> list[IntArray]:
    """Rows of similar length together, at most `tokens` padded events a batch, in random order."""
    order = np.argsort(lengths * rng.uniform(1 - LENGTH_JITTER, 1 + LENGTH_JITTER, len(lengths)))
    longest = np.maximum.accumulate(lengths[order])
    batches, begin = [], 0
    while begin < len(order):
        # the largest end such that (end - begin) * longest so far fits; at least one row goes in
        some = longest[begin : begin + tokens]  # no batch has more rows than tokens
        sizes = some * np.arange(1, len(some) + 1)
        end = begin + max(1, int(np.searchsorted(sizes, tokens, side="right")))
        batches.append(order[begin:end])
        begin = end
    return [batches[index] for index in rng.permutation(len(batches))]


def _count_up(counts: IntArray) -> IntArray:
    """0..c-1 for each c, end to end: [2, 3] -> [0, 1, 0, 1, 2]."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
