"""Of what comes later, an encoding knows when the request is, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from linrec.backbones import Backbone
from linrec.data.dataset.gaps import gaps_of
from linrec.data.dataset.sequences import Sequences
from tests.contracts.cases import (
    CAUSAL_BACKBONES,
    EVERY_ATTENTION,
    EVERY_WAY,
    close,
    history,
    model,
)

NOW, LENGTH = 25, 40
TIMES = torch.arange(LENGTH, dtype=torch.float64)[None] ** 2
REQUEST = torch.tensor([1e5])


def at_each(encoder: Backbone, items: Tensor, times: Tensor) -> Tensor:
    keep = torch.ones(items.shape, dtype=torch.bool)
    return encoder(items, keep, *gaps_of(times, keep, REQUEST))


@CAUSAL_BACKBONES
@EVERY_ATTENTION
def test_no_position_sees_a_later_event_or_its_time(backbone: str, attention: str) -> None:
    """Position t is given the time of event t + 1, when its target is requested."""
    encoder, items = model(backbone, attention, time_gaps=True), history(LENGTH)
    before = at_each(encoder, items, TIMES)
    other_items = torch.cat([items[:, :NOW], history(LENGTH, seed=1)[:, NOW:]], 1)
    other_times = TIMES.clone()
    other_times[:, NOW + 1 :] += 12_345.0
    after = at_each(encoder, other_items, other_times)
    close(after[:, :NOW], before[:, :NOW])
    other_times[:, NOW] += 500.0
    after = at_each(encoder, other_items, other_times)
    close(after[:, : NOW - 1], before[:, : NOW - 1])
    assert not torch.allclose(after[:, NOW - 1], before[:, NOW - 1])


def cut(items: Tensor, times: Tensor, until: float) -> Sequences:
    """The first events of a longer history, as a split cuts it."""
    rows = Sequences.of(list(items.numpy().astype(np.int32)), list(times.numpy()))
    return replace(rows, ends=np.array([NOW]), until=np.array([until]))


@EVERY_WAY
@EVERY_ATTENTION
def test_an_encoding_knows_the_request_and_nothing_later(
    backbone: str, objective: str, attention: str
) -> None:
    encoder = model(backbone, attention, objective=objective, time_gaps=True)
    items, later = history(LENGTH), TIMES.clone()
    other = torch.cat([items[:, :NOW], history(LENGTH, seed=1)[:, NOW:]], 1)
    later[:, NOW:] += 12_345.0
    for until in (float(TIMES[0, NOW]), torch.nan):
        close(encoder.encode(cut(other, later, until)), encoder.encode(cut(items, TIMES, until)))
    soon, days = (encoder.encode(cut(items, TIMES, 700.0 + wait)) for wait in (0.0, 1e6))
    assert not torch.allclose(soon, days)


@EVERY_WAY
@EVERY_ATTENTION
def test_when_the_past_happened_matters(backbone: str, objective: str, attention: str) -> None:
    encoder = model(backbone, attention, objective=objective, time_gaps=True)
    items, times = history(LENGTH), TIMES.clone()
    times[:, :10] -= 5_000.0
    known, moved = (encoder.encode(cut(items, clock, 700.0)) for clock in (TIMES, times))
    assert not torch.allclose(known, moved)
