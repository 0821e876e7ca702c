"""From sequences to padded batches: windows over long histories, bucketed by length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from linrec.data.dataset.baskets import Baskets
from linrec.data.dataset.gaps import context_with_mask, forget_some, gaps_with_request, read_events
from linrec.data.dataset.repeat_index import RepeatIndex
from linrec.data.dataset.seen import SeenIndex
from linrec.data.dataset.sequences import IntArray, Sequences, concatenated_ranges
from linrec.types import PAD, Events, SequenceBatch

# the jitter mixes the batches from epoch to epoch at the cost of 3 % of the positions in padding on
# ML-1M; 0.1 cost 6 to 8 % (docs/log.md)
LENGTH_JITTER = 0.04


Task = Callable[[Sequences, np.random.Generator], SequenceBatch]
"""From some rows, and the event after each, to the encoder's input and targets."""


@dataclass(frozen=True, slots=True)
class TrainingBatches:
    """The batches of one epoch, each built on access."""

    inputs: Sequences  # without the next event, which follows each row in the array
    rows: list[IntArray]  # of each batch
    task: Task
    n_targets: int
    seed: int  # of the random numbers of the task
    seen: SeenIndex | None = None  # for a loss that leaves seen items out
    past: RepeatIndex | None = None  # for a model with a repeat head
    weights: NDArray[np.float32] | None = None  # [events], of each as a target; None: all alike
    worker: int = 0  # of `workers`, which share each batch
    workers: int = 1

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> SequenceBatch:
        rng = np.random.default_rng([self.seed, index])
        inputs = self.inputs.take(self.rows[index])
        batch = self.task(inputs, rng)  # the draws are those of the whole batch, whoever needs them
        if self.weights is not None:
            weights = self.weights[self._target_events(inputs, batch)]
            batch = batch._replace(weights=torch.from_numpy(weights))
        if self.workers > 1:
            rows = share_of(inputs.lengths, self.worker, self.workers)
            inputs, batch = inputs.take(np.arange(rows.start, rows.stop)), batch.rows(rows)
        if self.seen is None and self.past is None:
            return batch
        events = self._target_events(inputs, batch)
        return batch._replace(
            seen=None if self.seen is None else self.seen.before(events),
            past=None if self.past is None else self.past.before(events, _unknown_times(batch)),
        )

    def __iter__(self) -> Iterator[SequenceBatch]:
        return (self[index] for index in range(len(self)))

    def with_seen(
        self,
        seen: SeenIndex | None,
        past: RepeatIndex | None = None,
        weights: NDArray[np.float32] | None = None,
    ) -> TrainingBatches:
        """The same batches, with what was seen before each target in the whole history, and with
        how much each target counts."""
        return replace(self, seen=seen, past=past, weights=weights)

    def divided(self, worker: int, workers: int) -> TrainingBatches:
        """Of each batch the rows of one worker, which may be none."""
        return replace(self, worker=worker, workers=workers)

    def _target_events(self, inputs: Sequences, batch: SequenceBatch) -> IntArray:
        """The position of each target in the array of events, row by row."""
        rows, columns = (batch.targets != PAD).numpy().nonzero()
        ahead = 0 if isinstance(self.task, Masking) else 1  # a mask stands in for its own event
        return np.asarray(inputs.starts[rows] + columns + ahead, np.int64)


def all_position_batches(
    train: Sequences,
    *,
    window: int,
    tokens: int,
    rng: np.random.Generator,
    unknown_time: float = 0.0,
    baskets: Baskets | None = None,
    eligible: NDArray[np.bool_] | None = None,
) -> TrainingBatches:
    """Windows of at most `window` events that together cover every target exactly once.

    unknown_time: share of the targets whose time the encoder is not given. baskets: with them, one
    event of each basket is the target of what came before that basket. eligible: [events], which
    are targets; windows without any are left out.
    """
    inputs = windows(train, window, rng)
    task = partial(next_at_each, unknown_time=unknown_time, baskets=baskets, eligible=eligible)
    if eligible is not None:
        each = eligible_among(eligible, inputs.starts + 1, inputs.ends + 1)
        inputs = inputs.take(np.flatnonzero(each))
        return _batches(inputs, task, int(each.sum()), tokens, rng)
    targets = int(inputs.lengths.sum())
    if baskets is not None:
        targets = int(
            baskets.begin_at(concatenated_ranges(inputs.starts + 1, inputs.lengths)).sum()
        )
    return _batches(inputs, task, targets, tokens, rng)


def last_position_batches(
    train: Sequences,
    *,
    window: int,
    tokens: int,
    rng: np.random.Generator,
    unknown_time: float = 0.0,
    baskets: Baskets | None = None,
    eligible: NDArray[np.bool_] | None = None,
) -> TrainingBatches:
    """One row per target, its history cut to the last `window` events, as in the paper."""
    inputs = prefixes(train, window)
    if baskets is not None:
        inputs = inputs.take(np.flatnonzero(baskets.begin_at(inputs.ends)))
    if eligible is not None:
        inputs = inputs.take(np.flatnonzero(eligible[inputs.ends]))
    task = partial(next_at_last, unknown_time=unknown_time, baskets=baskets)
    return _batches(inputs, task, len(inputs), tokens, rng)


def cloze_batches(
    inputs: Sequences, mask: Masking, *, tokens: int, rng: np.random.Generator
) -> TrainingBatches:
    """Each row with the event after it, masked, and some of the others too.

    Rows are as long as in the other objectives, so the masked event is not counted in `tokens`.
    """
    if mask.eligible is not None:
        some = eligible_among(mask.eligible, inputs.starts, inputs.ends + 1) > 0
        inputs = inputs.take(np.flatnonzero(some))
    last = len(inputs) if mask.eligible is None else int(mask.eligible[inputs.ends].sum())
    targets = last + int(mask.hidden_of(inputs).sum())
    return _batches(inputs, mask, targets, tokens, rng)


def _batches(
    inputs: Sequences, task: Task, targets: int, tokens: int, rng: np.random.Generator
) -> TrainingBatches:
    rows = bucketed(inputs.lengths, tokens, rng)
    return TrainingBatches(inputs, rows, task, targets, int(rng.integers(2**63)))


def next_at_each(
    inputs: Sequences,
    rng: np.random.Generator,
    unknown_time: float = 0.0,
    baskets: Baskets | None = None,
    eligible: NDArray[np.bool_] | None = None,
) -> SequenceBatch:
    """The target of each event is the one after it, or one of the basket that begins there."""
    following = replace(inputs, starts=inputs.starts + 1, ends=inputs.ends + 1)
    events = read_events(inputs.before(inputs.ends))
    if events.following is not None:
        some = forget_some(events.following.numpy(), unknown_time, rng)
        events = events._replace(following=torch.from_numpy(some))
    targets = following.padded()
    inside = targets != PAD
    next_events = concatenated_ranges(following.starts, following.lengths)
    if eligible is not None:
        targets[inside] = np.where(eligible[next_events], targets[inside], PAD)
    if baskets is not None:
        targets[inside] = np.where(
            baskets.begin_at(next_events), inputs.items[baskets.one_of(next_events, rng)], PAD
        )
    return _batch(events, targets)


def next_at_last(
    inputs: Sequences,
    rng: np.random.Generator,
    unknown_time: float = 0.0,
    baskets: Baskets | None = None,
) -> SequenceBatch:
    """Only the last event has a target."""
    events = read_events(_before_next(inputs, unknown_time, rng))
    targets = np.full(events.items.shape, PAD)
    next_events = inputs.ends if baskets is None else baskets.one_of(inputs.ends, rng)
    targets[np.arange(len(inputs)), inputs.lengths - 1] = inputs.items[next_events]
    return _batch(events, targets)


@dataclass(frozen=True, slots=True)
class Masking:
    """Some events are replaced by a mask token and become targets; the next event always is.

    So every row contains the task of inference: predict what follows this history.
    """

    token: int
    ratio: float  # of the events before the last
    unknown_time: float = 0.0  # share of the rows that do not know when the next event is
    eligible: NDArray[np.bool_] | None = None  # [events], which are targets; others are not masked

    def __call__(self, inputs: Sequences, rng: np.random.Generator) -> SequenceBatch:
        rows = replace(inputs, ends=inputs.ends + 1)
        items = rows.padded()
        draws = rng.random(items.shape)
        draws[np.arange(items.shape[1]) >= inputs.lengths[:, None]] = 2.0  # padding comes last
        if self.eligible is not None:
            inside = items != PAD
            events = concatenated_ranges(rows.starts, rows.lengths)
            draws[inside] = np.where(self.eligible[events], draws[inside], 2.0)
        order = draws.argsort(1).argsort(1)
        masked = order < self.hidden_of(inputs)[:, None]
        masked[np.arange(len(rows)), inputs.lengths] = True
        read = torch.from_numpy(np.where(masked, self.token, items))
        gaps = gaps_with_request(_before_next(inputs, self.unknown_time, rng)) or (None, None)
        context = context_with_mask(rows, torch.from_numpy(masked))
        targets = np.where(masked, items, PAD)
        if self.eligible is not None:
            last = np.arange(len(rows)), inputs.lengths
            targets[last] = np.where(self.eligible[inputs.ends], targets[last], PAD)
        return _batch(Events(read, read != PAD, *gaps)._replace(context=context), targets)

    def hidden_of(self, inputs: Sequences) -> IntArray:
        """How many events of each row are masked in addition to the next one."""
        if self.eligible is None:
            return self.hidden_among(inputs.lengths)
        return self.hidden_among(eligible_among(self.eligible, inputs.starts, inputs.ends))

    def hidden_among(self, lengths: IntArray) -> IntArray:
        """How many events of a row are masked in addition to the next one."""
        return np.asarray(np.rint(self.ratio * lengths), dtype=np.int64)


def eligible_among(eligible: NDArray[np.bool_], starts: IntArray, stops: IntArray) -> IntArray:
    """How many of the events from each start to its stop are targets."""
    before = np.concatenate([[0], np.cumsum(eligible)])
    return np.asarray(before[stops] - before[starts], np.int64)


def _before_next(inputs: Sequences, unknown: float, rng: np.random.Generator) -> Sequences:
    """The rows, each open until the event after it, or until an unknown time."""
    rows = inputs.before(inputs.ends)
    if rows.until is None:
        return rows
    return replace(rows, until=forget_some(rows.until, unknown, rng))


def _unknown_times(batch: SequenceBatch) -> NDArray[np.bool_]:
    """[targets], whether the encoder is not given the time of each target."""
    targets = (batch.targets != PAD).numpy()
    if batch.following is None:
        return np.ones(int(targets.sum()), np.bool_)
    return np.asarray(np.isnan(batch.following.numpy()[targets]))


def _batch(events: Events, targets: IntArray) -> SequenceBatch:
    previous, following = events.gaps or (None, None)
    items, keep, goal = events.items, events.keep, torch.from_numpy(targets)
    return SequenceBatch(items, keep, goal, previous, following, context=events.context)


def share_of(lengths: IntArray, worker: int, workers: int) -> slice:
    """The rows of one of several workers, so that all have about as many events."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    middles = ends - lengths / 2
    begin, end = np.searchsorted(middles, [total * k / workers for k in (worker, worker + 1)])
    return slice(int(begin), int(end))


def prefixes(train: Sequences, window: int) -> Sequences:
    """One row per target, its history cut to the last `window` events."""
    targets = np.maximum(train.lengths - 1, 0)
    starts = np.repeat(train.starts, targets)
    ends = starts + _count_up(targets) + 1
    return replace(train, starts=starts, ends=ends, until=None).last(window)


def windows(
    train: Sequences, window: int, rng: np.random.Generator, *, cut_all: bool = False
) -> Sequences:
    """Cut each row's inputs into windows; long rows are cut at other positions in each call.

    The first piece of a row longer than `window` has a random size, so that over the epochs every
    target has short and long contexts. With `cut_all` the first piece of every row has: if only
    the event after a piece is a target, it must not always be the same one.
    """
    inputs = np.maximum(train.lengths - 1, 0)  # the last event is a target only
    cut = (inputs > 0) if cut_all else (inputs > window)
    share = rng.integers(1, window + 1, len(train))  # of the window, or of a row that is shorter
    first = np.where(cut, -(-share * np.minimum(inputs, window) // window), inputs)
    pieces = np.where(inputs > 0, 1 + -(-(inputs - first) // window), 0)
    row = np.repeat(np.arange(len(train)), pieces)
    piece = _count_up(pieces)
    starts = train.starts[row] + np.where(piece > 0, first[row] + (piece - 1) * window, 0)
    length = np.where(piece > 0, window, first[row])
    ends = np.minimum(starts + length, train.starts[row] + inputs[row])
    return replace(train, starts=starts, ends=ends, until=None)


def bucketed(lengths: IntArray, tokens: int, rng: np.random.Generator) -> list[IntArray]:
    """Rows of similar length together, at most `tokens` padded events per batch, shuffled."""
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
