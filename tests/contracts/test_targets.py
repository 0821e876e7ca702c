"""In training too, nothing of a target reaches the input that it is predicted from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from linrec.backbones import Backbone
from linrec.data.dataset.item_features import FIRST
from linrec.data.dataset.repeat_index import RepeatIndex
from linrec.data.dataset.seen import SeenIndex
from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.splits import leave_one_out
from linrec.layers.repeats import pairs_of
from linrec.runs.config import RunConfig, TrainingConfig
from linrec.training.loop import epoch_batches
from linrec.types import PAD, SequenceBatch
from tests.contracts.cases import (
    CAUSAL_BACKBONES,
    EVERY_WAY,
    N_ITEMS,
    close,
    cycle,
    model,
)

TWO_ATTENTIONS = pytest.mark.parametrize("attention", ["softmax", "linrec-decay"])


class Predictions(NamedTuple):
    """What a model makes of all targets of an epoch."""

    targets: Tensor  # [T], items
    hidden: Tensor  # [T, width], what each is predicted from
    events: Tensor  # [T], the position of each in the array of events


def log() -> Sequences:
    """With times, and with a context that differs from event to event."""
    rows = cycle(12).sequences()
    assert rows.times is not None
    codes = FIRST + np.random.default_rng(0).integers(0, 2, (len(rows.items), 1))
    return replace(rows, context=codes.astype(np.int32))


def some_events(rows: Sequences) -> np.ndarray:
    """One per user, not among those that a split holds out, and after two others: of a history of
    one event, core's average is that event."""
    return rows.starts + np.random.default_rng(1).integers(2, rows.lengths - 2)


def batches_of(made: Backbone, rows: Sequences, **changes: Any) -> list[SequenceBatch]:
    training = TrainingConfig(batch_tokens=64, **changes)
    split = leave_one_out(rows)
    batches = epoch_batches(made, split, RunConfig(model=made.config, training=training), 0)
    return list(batches.with_seen(SeenIndex.of(split.train), RepeatIndex.of(split.train)))


def predictions_of(made: Backbone, rows: Sequences, **changes: Any) -> Predictions:
    numbered = replace(rows, items=np.arange(1, len(rows.items) + 1, dtype=np.int32))
    parts = []
    for batch, which in zip(
        batches_of(made, rows, **changes), batches_of(made, numbered, **changes), strict=True
    ):
        at = batch.targets != PAD
        assert torch.equal(at, which.targets != PAD)
        with torch.no_grad():
            hidden = made(*batch.events)
        parts.append((batch.targets[at], hidden[at], which.targets[at] - 1))
    return Predictions(*(torch.cat(part) for part in zip(*parts, strict=True)))


def made_for(backbone: str, attention: str, objective: str) -> Backbone:
    return model(backbone, attention, objective=objective, time_gaps=True, context=("type",))


@EVERY_WAY
@TWO_ATTENTIONS
def test_what_a_target_is_does_not_reach_its_own_input(
    backbone: str, objective: str, attention: str
) -> None:
    made, rows = made_for(backbone, attention, objective), log()
    events, items, codes = some_events(rows), rows.items.copy(), rows.context.copy()
    items[events] = items[events] % N_ITEMS + 1
    codes[events] = 2 * FIRST + 1 - codes[events]
    before, after = (
        predictions_of(made, each) for each in (rows, replace(rows, items=items, context=codes))
    )
    asked = torch.from_numpy(np.isin(before.events.numpy(), events))
    assert torch.equal(before.targets != after.targets, asked)
    assert asked.sum() >= (3 if objective == "cloze" else len(rows))
    close(after.hidden[asked], before.hidden[asked])
    # and it does reach the inputs of others, or this would show nothing
    others = ~asked & (before.hidden - after.hidden).abs().amax(1).gt(1e-6)
    assert others.sum() > len(rows) // 2


@EVERY_WAY
@TWO_ATTENTIONS
def test_when_a_target_is_requested_is_known_unless_it_is_to_be_unknown(
    backbone: str, objective: str, attention: str
) -> None:
    """Everything from that event on happens later. A mask between events has the times of both."""
    made, rows = made_for(backbone, attention, objective), log()
    events, times = some_events(rows), rows.times.copy()
    for event, end in zip(events, rows.ends, strict=True):
        times[event:end] += 1e6
    later = replace(rows, times=times)
    for share, is_known in ((0.0, True), (1.0, False)):
        first, second = (predictions_of(made, each, unknown_time=share) for each in (rows, later))
        # of a window only the last event is the one that is requested
        asked = np.isin(first.events.numpy(), events)
        if objective == "cloze":
            asked &= last_of_their_rows(made, rows, unknown_time=share)
        assert asked.any()
        differ = (first.hidden - second.hidden).abs().amax(1).numpy()[asked] > 1e-6
        assert differ.all() if is_known else not differ.any()


def last_of_their_rows(made: Backbone, rows: Sequences, **changes: Any) -> np.ndarray:
    parts = []
    for batch in batches_of(made, rows, **changes):
        at = batch.targets != PAD
        newest = batch.keep.sum(1, keepdim=True) - 1
        parts.append((torch.arange(at.shape[1]) == newest).expand(at.shape)[at])
    return torch.cat(parts).numpy()


@EVERY_WAY
def test_a_target_is_not_among_what_was_seen_before_it(backbone: str, objective: str) -> None:
    """The items left out of the loss, and the past that a repeat head counts."""
    made, rows = made_for(backbone, "linrec-decay", objective), log()
    items = (rows.items - 1) % 5 + 1  # so that items repeat
    rows = replace(rows, items=items.astype(np.int32))
    which = predictions_of(made, rows).events.tolist()
    listed = []
    for batch in batches_of(made, rows):
        assert batch.seen is not None
        assert batch.past is not None
        pairs = pairs_of(batch.past, 0, len(batch.seen.counts))
        for target, (start, count) in enumerate(zip(*batch.seen[1:3], strict=True)):
            seen = set(batch.seen.items[start : start + count].tolist())
            assert set(pairs.items[pairs.rows == target].tolist()) == seen
            listed.append(seen)
    for event, seen in zip(which, listed, strict=True):
        begin = rows.starts[np.searchsorted(rows.starts, event, side="right") - 1]
        assert seen == set(items[begin:event].tolist())


@CAUSAL_BACKBONES
def test_the_time_of_another_user_changes_nothing(backbone: str) -> None:
    """Not in the last bit: neither its events' times nor its request."""
    made, rows = model(backbone, "linrec-decay", time_gaps=True), log()
    rows = replace(rows, context=None)
    rows = rows.before(rows.ends - 1)
    assert rows.times is not None
    assert rows.until is not None
    moved, until = rows.times.copy(), rows.until.copy()
    moved[: rows.ends[0]] *= 3.0
    until[0] += 1e7
    found = [made.encode(each) for each in (rows, replace(rows, times=moved, until=until))]
    assert torch.equal(found[0][1:], found[1][1:])
    assert not torch.allclose(found[0][0], found[1][0])
