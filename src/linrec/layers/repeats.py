"""The repeat head: what an item's score gains because the user has had it before.

The addition is w_0 + sum over k of w_k log(1 + c_k), for counts c_k of the item that decay at
several rates (`data.dataset.half_lives`). The weights follow from the hidden vector, so the model
decides when to repeat and when to explore. Items without a past get no addition.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linrec.data.dataset.half_lives import IN_EVENTS, IN_SECONDS, half_lives
from linrec.ops import fused, rows
from linrec.types import PastCounts


class RepeatHead(nn.Module):
    """From hidden vectors to the weights of the counts: [..., width] -> [..., 1 + K].

    All weights begin as zero: a new model is the same with and without the head. A trained model
    multiplies them by `scale`, which is chosen on validation (`training.calibration`); training
    itself does not read it.
    """

    scale: Tensor  # []

    def __init__(self, width: int, timed: bool) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()))
        self.weight = nn.Parameter(torch.zeros(1 + half_lives(timed), width))
        self.bias = nn.Parameter(torch.zeros(1 + half_lives(timed)))

    def forward(self, hidden: Tensor) -> Tensor:
        # in float32 as scores are: additions are compared with them
        with torch.autocast(hidden.device.type, enabled=False):
            weights = nn.functional.linear(hidden.to(self.weight.dtype), self.weight, self.bias)
            return weights if self.training else weights * self.scale

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Models of earlier versions have no scale."""
        state.setdefault(f"{prefix}scale", torch.ones(()))
        super()._load_from_state_dict(state, prefix, *rest)


class Pairs(NamedTuple):
    """Every target with every item of its past, target by target."""

    rows: Tensor  # [P] int64, the target, counted from the first one asked for
    items: Tensor  # [P] int64
    past: PastCounts  # of these targets alone

    def gains(self, weights: Tensor) -> Tensor:
        """The addition of each pair, with the weights [R, 1 + K] of the targets: [P]."""
        if fused.takes(weights, (torch.float32,)):
            return rows.repeat_gains(*_rates(self.past), self.past, weights)
        return (self.features().to(weights.dtype) * weights[self.rows]).sum(1)

    def to_weights(self, gradient: Tensor) -> Tensor:
        """The gradient of the weights, from that of the additions: [P] -> [R, 1 + K]."""
        if fused.takes(gradient, (torch.float32,)):
            return rows.repeat_to_weights(*_rates(self.past), self.past, gradient)
        each = self.features().to(gradient.dtype) * gradient[:, None]
        counts = self.past.counts
        return torch.segment_reduce(each, "sum", lengths=counts, axis=0, unsafe=True)

    def features(self) -> Tensor:
        """1 and the logarithms of the counts, [P, 1 + K] float32: what the kernels never hold."""
        past, rows = self.past, self.rows
        ages = (past.ends - 1)[rows] - past.places[past.newest]
        seconds = None
        if past.times is not None and past.moments is not None:
            seconds = past.moments[rows] - past.times[past.newest]
        logs = (past.sums[past.newest] * remaining(ages, seconds)).log1p_()
        return nn.functional.pad(logs, (1, 0), value=1.0)


def pairs_of(past: PastCounts, begin: int = 0, end: int | None = None) -> Pairs:
    """Those of the targets from begin to end."""
    counts = past.counts[begin:end]
    first, total = past.pairs(slice(begin)), past.pairs(slice(begin, end))
    targets = torch.arange(len(counts), device=counts.device)
    rows = torch.repeat_interleave(targets, counts, output_size=total)
    newest = past.newest[first : first + total]
    moments = None if past.moments is None else past.moments[begin:end]
    some = past._replace(
        newest=newest, counts=counts, ends=past.ends[begin:end], moments=moments, seen=None,
        known=None if past.known is None else past.known[begin:end],
    )  # fmt: skip
    return Pairs(rows, past.items[newest], some)


def _rates(past: PastCounts) -> tuple[Tensor, int]:
    """1 / half-life of each count, and how many of them decay with events."""
    timed = past.times is not None and past.moments is not None
    return _all_rates(timed), len(IN_EVENTS)


@cache
def _all_rates(timed: bool) -> Tensor:
    return 1.0 / torch.tensor(IN_EVENTS + (IN_SECONDS if timed else ()))


def remaining(events: Tensor, seconds: Tensor | None) -> Tensor:
    """As `half_lives.remaining`, in float32: what is left of a count at these ages, [P, K]."""
    left = _halved(events.float(), IN_EVENTS)
    if seconds is None:
        return left
    in_time = _halved(seconds.clamp(min=0).float(), IN_SECONDS)
    return torch.cat([left, in_time.nan_to_num_(nan=0.0)], 1)


def _halved(ages: Tensor, half_lives: tuple[float, ...]) -> Tensor:
    """[P, K]. One by one: a tensor of the half-lives would be copied to a GPU at every step."""
    return torch.exp2(torch.stack([ages * (-1.0 / each) for each in half_lives], 1))


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
        pairs = ctx.pairs = pairs_of(past, begin, begin + len(weights))
        ctx.dtype = weights.dtype
        ctx.mark_non_differentiable(pairs.rows, pairs.items)
        return pairs.rows, pairs.items, pairs.gains(weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.pairs.to_weights(gradients[2].contiguous()).to(ctx.dtype), None, None
