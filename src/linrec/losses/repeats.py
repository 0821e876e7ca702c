"""What a loss knows of a repeat head, and the scores of past items for losses that sample.

A user's own past items are rarely drawn from a large catalogue. A head that only ever saw them as
targets would learn to repeat always, so the sampling losses compare each target with every item of
its past.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from linrec.layers.repeats import additions
from linrec.losses.items import ItemVectors
from linrec.types import PastCounts

# targets at a time: neighbours are mostly of one user, and share their past items
ROWS = 256


class Repeats(NamedTuple):
    """What the scores of past items gain: `layers.repeats.additions` of these."""

    weights: Tensor  # [T, 1 + K], of each target
    past: PastCounts


class PastScores(NamedTuple):
    """Some targets with all items of the past of any of them."""

    own: Tensor  # [R], what the target itself gains
    scores: Tensor  # [R, U], with what they gain
    others: Tensor  # [R, U] bool, True on the past items of a target, except the target itself
    drawn: Tensor  # [R, D] bool, which of the items that were given are past items


def past_scores(
    hidden: Tensor,
    targets: Tensor,
    items: ItemVectors,
    repeats: Repeats,
    drawn: Tensor | None = None,
) -> Iterator[PastScores]:
    """hidden: [T, d], targets: [T]. Of `ROWS` targets at a time, in their order.

    drawn: [D], the negatives, if all targets share them.
    """
    drawn = targets[:0] if drawn is None else drawn
    # one lookup for all: its gradient is a table as large as the catalogue
    known = torch.unique(repeats.past.items)
    vectors, bias = items.of(known)
    different, copies = torch.unique(drawn, return_inverse=True)
    largest = int(torch.cat([known, drawn, targets]).max()) if len(targets) else 0
    column_of, draw_of = _places(known, largest), _places(different, largest)
    for begin in range(0, len(targets), ROWS):
        rows = slice(begin, begin + ROWS)
        x, target = hidden[rows], targets[rows]
        gained = additions(repeats.weights[rows].to(hidden.dtype), repeats.past, begin)
        with torch.autocast(hidden.device.type, enabled=False):
            some = vectors.to(x.dtype).T
            scores = x @ some if bias is None else torch.addmm(bias.to(x.dtype), x, some)
        place = gained.rows * len(known) + column_of[gained.items]
        scores = scores.flatten().index_add(0, place, gained.values).view(scores.shape)
        is_target = gained.items == target[gained.rows]
        others = torch.zeros_like(scores, dtype=torch.bool)
        others.view(-1)[place] = ~is_target
        own = torch.zeros_like(x[:, 0]).index_add(
            0, gained.rows[is_target], gained.values[is_target]
        )
        draw = draw_of[gained.items]
        hit = draw >= 0
        seen = torch.zeros(len(x), len(different), dtype=torch.bool, device=x.device)
        seen[gained.rows[hit], draw[hit]] = True
        yield PastScores(own, scores, others, seen.index_select(1, copies))


def _places(items: Tensor, largest: int) -> Tensor:
    """Where each item is in a list, -1 if nowhere: [largest + 1]."""
    table = torch.full((largest + 1,), -1, device=items.device)
    table[items] = torch.arange(len(items), device=items.device)
    return table
