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


def past_scores(
    hidden: Tensor, targets: Tensor, items: ItemVectors, repeats: Repeats
) -> Iterator[PastScores]:
    """hidden: [T, d], targets: [T]. Of `ROWS` targets at a time, in their order."""
    # one lookup for all: its gradient is a table as large as the catalogue
    known = torch.unique(repeats.past.items)
    vectors, bias = items.of(known)
    for begin in range(0, len(targets), ROWS):
        rows = slice(begin, begin + ROWS)
        x, target = hidden[rows], targets[rows]
        gained = additions(repeats.weights[rows].to(hidden.dtype), repeats.past, begin)
        place, column = torch.unique(torch.searchsorted(known, gained.items), return_inverse=True)
        some = vectors.index_select(0, place).to(x.dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            scores = x @ some.T if bias is None else torch.addmm(bias[place], x, some.T)
        scores = scores.index_put((gained.rows, column), gained.values, accumulate=True)
        others = torch.zeros_like(scores, dtype=torch.bool)
        is_target = gained.items == target[gained.rows]
        others[gained.rows, column] = ~is_target
        own = torch.zeros_like(x[:, 0]).index_add(
            0, gained.rows[is_target], gained.values[is_target]
        )
        yield PastScores(own, scores, others)
