"""Which past events a score came from: each is left out in turn, and the score computed again."""

from __future__ import annotations

import numpy as np
import torch

from linrec.serving.model import ServedModel
from linrec.serving.snapshot import Indices, Snapshot

NEWEST = 50  # events that are left out in turn, at most
# events encoded for one explanation by a model without a state, at most
BUDGET = 100_000


def leave_one_out(model: ServedModel, items: Indices, item: int) -> tuple[float, list[float]]:
    """The score of `item`, and by how much each of the newest events raised it, oldest first.

    A contribution is the score minus the score had that event never happened. Contributions need
    not sum to the score: events overlap. Where nothing is left without the event the score counts
    as 0.
    """
    if model.streams:
        return _from_state(model, items, item)
    count = max(min(NEWEST, len(items), BUDGET // len(items)), 1)
    first = len(items) - count
    rows = [items, *(np.delete(items, position) for position in range(first, len(items)))]
    return _differences(model, rows, None, item)


def _from_state(model: ServedModel, items: Indices, item: int) -> tuple[float, list[float]]:
    """The past before the newest events is read once and shared."""
    past, newest = items[:-NEWEST], items[-NEWEST:]
    snapshot = model.advance([(None, past)])[0] if len(past) else None
    rows = [newest, *(np.delete(newest, position) for position in range(len(newest)))]
    return _differences(model, rows, snapshot, item)


def _differences(
    model: ServedModel, rows: list[Indices], snapshot: Snapshot | None, item: int
) -> tuple[float, list[float]]:
    if snapshot is None and len(rows[0]) == 1:
        (score,) = model.score(model.encode(rows[:1]), item).tolist()
        return score, [score]
    if model.streams:
        ends = model.advance([(snapshot, row) for row in rows])
        hidden = torch.stack([model.hidden(end) for end in ends])
    else:
        hidden = model.encode(rows)
    whole, *without = model.score(hidden, item).tolist()
    return whole, [whole - left for left in without]
