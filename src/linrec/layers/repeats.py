"""The repeat head: what an item's score gains because the user has had it before.

The addition is w_0 + sum over k of w_k log(1 + c_k), for counts c_k of the item that decay at
several rates (`data.dataset.half_lives`). The weights follow from the hidden vector, so the model
decides when to repeat and when to explore. Items without a past get no addition.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linrec.data.dataset.half_lives import IN_EVENTS, IN_SECONDS, half_lives
from linrec.types import PastCounts


class RepeatHead(nn.Module):
    """From hidden vectors to the weights of the counts: [..., width] -> [..., 1 + K].

    All weights begin as zero: a new model is the same with and without the head.
    """

    def __init__(self, width: int, timed: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1 + half_lives(timed), width))
        self.bias = nn.Parameter(torch.zeros(1 + half_lives(timed)))

    def forward(self, hidden: Tensor) -> Tensor:
        # in float32 as scores are: additions are compared with them
        with torch.autocast(hidden.device.type, enabled=False):
            return nn.functional.linear(hidden.to(self.weight.dtype), self.weight, self.bias)


class Pairs(NamedTuple):
    """Every target with every item of its past, target by target."""

    rows: Tensor  # [P] int64, the target, counted from the first one asked for
    items: Tensor  # [P] int64
    features: Tensor  # [P, 1 + K] float32: 1 and the logarithms of the counts


def pairs_of(past: PastCounts, begin: int = 0, end: int | None = None) -> Pairs:
    """Those of the targets from begin to end."""
    counts = past.counts[begin:end]
    rows = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    first = int(past.counts[:begin].sum())
    newest = past.newest[first : first + len(rows)]
    ages = (past.ends[begin:end] - 1)[rows] - past.places[newest]
    seconds = None
    if past.times is not None and past.moments is not None:
        seconds = past.moments[begin:end][rows] - past.times[newest]
    logs = (past.sums[newest] * remaining(ages, seconds)).log1p_()
    return Pairs(rows, past.items[newest], nn.functional.pad(logs, (1, 0), value=1.0))


def remaining(events: Tensor, seconds: Tensor | None) -> Tensor:
    """As `half_lives.remaining`, in float32: what is left of a count at these ages, [P, K]."""
    left = torch.exp2(events.float()[:, None] * -_rates(IN_EVENTS, events.device))
    if seconds is None:
        return left
    ages = seconds.clamp(min=0).float()[:, None]
    in_time = torch.exp2(ages * -_rates(IN_SECONDS, events.device))
    return torch.cat([left, in_time.nan_to_num_(nan=0.0)], 1)


def _rates(half_lives: tuple[float, ...], device: torch.device) -> Tensor:
    return 1.0 / torch.tensor(half_lives, device=device)


class Additions(NamedTuple):
    """What the scores of past items gain."""

    rows: Tensor  # [P], the target
    items: Tensor  # [P]
    values: Tensor  # [P]


def additions(weights: Tensor, past: PastCounts, begin: int = 0) -> Additions:
    """weights: [R, 1 + K], those of the targets begin, begin + 1, ..."""
    rows, items, values = _Additions.apply(weights, past, begin)  # type: ignore[no-untyped-call]
    return Additions(rows, items, values)


class _Additions(torch.autograd.Function):
    """The features are as large as all else together, so backward computes them again."""

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, past: PastCounts, begin: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        pairs = pairs_of(past, begin, begin + len(weights))
        ctx.past, ctx.begin, ctx.rows, ctx.dtype = past, begin, len(weights), weights.dtype
        ctx.mark_non_differentiable(pairs.rows, pairs.items)
        return pairs.rows, pairs.items, weighted(pairs, weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        pairs = pairs_of(ctx.past, ctx.begin, ctx.begin + ctx.rows)
        counts = ctx.past.counts[ctx.begin : ctx.begin + ctx.rows]
        return to_weights(pairs, counts, gradients[2]).to(ctx.dtype), None, None


def weighted(pairs: Pairs, weights: Tensor) -> Tensor:
    """The addition of each pair: [P]."""
    return (pairs.features.to(weights.dtype) * weights[pairs.rows]).sum(1)


def to_weights(pairs: Pairs, counts: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of the weights, from that of the additions: [P] -> [R, 1 + K]."""
    each = pairs.features.to(gradient.dtype) * gradient[:, None]
    return torch.segment_reduce(each, "sum", lengths=counts, axis=0, unsafe=True)
