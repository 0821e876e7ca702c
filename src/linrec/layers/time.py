"""Time between events: gaps in half-octave buckets, and the vectors that stand for them.

A gap is known to within a factor of sqrt(2), whether it is seconds or years: bucket 0 is a gap of
0, then 1 + floor(2 log2 seconds), the last but one is everything longer, the last is "unknown".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from typing_extensions import Self

BUCKETS = 64
UNKNOWN = BUCKETS - 1
LONGEST = BUCKETS - 2  # from 2 ** 30.5 seconds, 48 years

# bucket b begins at bound b - 1. A comparison gives every runtime the same bucket, where a
# logarithm may round to either side of a power of two.
GAP_BOUNDS = torch.tensor(
    [torch.finfo(torch.float64).tiny] + [2 ** (half / 2) for half in range(1, LONGEST)],
    dtype=torch.float64,
)


def gap_buckets(seconds: Tensor, bounds: Tensor | None = None) -> Tensor:
    """The bucket of each gap, int64 of the same shape.

    NaN is unknown. So is a negative gap: a clock that went backwards says nothing, while a gap of 0
    says much (both events were sent at once). A part of a second counts as a second. bounds:
    GAP_BOUNDS on the same device, if they are there.
    """
    seconds = seconds.double().contiguous()
    bounds = GAP_BOUNDS.to(seconds.device) if bounds is None else bounds
    buckets = torch.bucketize(seconds, bounds, right=True)
    return torch.where(seconds >= 0, buckets, UNKNOWN)


class GapEmbedding(nn.Module):
    """The gaps around an event as one vector, which is added to what else is known of it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.previous = nn.Embedding(BUCKETS, width)
        self.next = nn.Embedding(BUCKETS, width)
        self.bounds = GAP_BOUNDS

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """The bounds go to the device with the weights, not with every batch, and stay float64."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.bounds = GAP_BOUNDS.to(self.previous.weight.device)
        return self

    def forward(self, previous: Tensor, following: Tensor) -> Tensor:
        """Seconds before and after each event, [B, N] both -> [B, N, width]."""
        before, after = (gap_buckets(gaps, self.bounds) for gaps in (previous, following))
        vectors: Tensor = self.previous(before) + self.next(after)
        return vectors
