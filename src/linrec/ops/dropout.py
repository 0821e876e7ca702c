"""Dropout whose draws follow from a seed and a number's place.

The way back draws again instead of keeping a mask. torch draws one number at a time on one thread,
and keeps it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linrec.ops import fused

CHANCES = 2**16  # 16 bits decide on a number: shares are rounded to multiples of 1 / 65,536
BLOCK = 16  # as in native/problem.hpp
_LOW = 2**32 - 1


def dropout(x: Tensor, share: float, seed: int) -> Tensor:
    """Zero a share of the numbers of x and enlarge the others by as much."""
    out: Tensor = _Dropout.apply(x, round(share * CHANCES), seed)  # type: ignore[no-untyped-call]
    return out


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dropped: int, seed: int) -> Tensor:
        ctx.drawn = dropped, seed
        return _dropped(x, dropped, seed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        gradient: Tensor = _Dropout.apply(gradients[0], *ctx.drawn)  # type: ignore[no-untyped-call]
        return gradient, None, None


def _dropped(x: Tensor, dropped: int, seed: int) -> Tensor:
    scale = CHANCES / max(CHANCES - dropped, 1)
    # seeds that are near each other differ in all bits; here and not earlier, because torch's
    # profiler takes no argument of a Function beyond 63 of them
    spread = seed * 0x9E3779B97F4A7C15 % 2**64
    if fused.takes(x):
        return fused.dropout(x, spread, dropped, scale)
    kept = draws(x.numel(), spread, x.device).view(x.shape) >= dropped
    return x * kept.to(x.dtype).mul_(scale)


def draws(count: int, seed: int, device: torch.device | str = "cpu") -> Tensor:
    """Numbers below 65,536, two of them from each counter, which is mixed with the seed twice."""
    blocks = -(-count // (2 * BLOCK))
    counters = torch.arange(blocks * BLOCK, device=device).view(blocks, BLOCK) & _LOW
    bits = _mixed((_mixed(counters ^ (seed & _LOW)) + (seed >> 32)) & _LOW)
    return torch.cat([bits & (CHANCES - 1), bits >> 16], 1).view(-1)[:count]


def _mixed(x: Tensor) -> Tensor:
    """Of 32 bits, held in 64: every bit moves every bit."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _LOW
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _LOW
    return x ^ (x >> 15)
