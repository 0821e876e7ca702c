"""Dropout whose draws follow from a seed and an index.

The backward pass draws again instead of keeping a mask; torch draws one number at a time on one
thread, and keeps the mask.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linrec.ops import fused, rows

CHANCES = 2**16  # 16 bits decide on a number: shares are rounded to multiples of 1 / 65,536
BLOCK = 16  # as in native/problem.hpp
_LOW = 2**32 - 1


def dropout(x: Tensor, share: float, seed: int) -> Tensor:
    """Zero a share of the numbers of x and scale the others to keep the mean."""
    out: Tensor = _Dropout.apply(x, round(share * CHANCES), seed)  # type: ignore[no-untyped-call]
    return out


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int, seed: int) -> Tensor:
        ctx.drawn = threshold, seed
        return _apply(x, threshold, seed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        gradient: Tensor = _Dropout.apply(gradients[0], *ctx.drawn)  # type: ignore[no-untyped-call]
        return gradient, None, None


def _apply(x: Tensor, threshold: int, seed: int) -> Tensor:
    scale = CHANCES / max(CHANCES - threshold, 1)
    # neighbouring seeds then differ in all bits; done here because torch's profiler takes no
    # argument of a Function beyond 63 bits
    spread_seed = seed * 0x9E3779B97F4A7C15 % 2**64
    if fused.takes(x):
        return rows.dropout(x, spread_seed, threshold, scale)
    kept = draws(x.numel(), spread_seed, x.device).view(x.shape) >= threshold
    # in float32 or wider and rounded once, as the kernel does
    wide = torch.promote_types(x.dtype, torch.float32)
    return (kept.to(wide).mul_(scale) * x).to(x.dtype)


def draws(count: int, seed: int, device: torch.device | str = "cpu") -> Tensor:
    """Numbers below 65,536, two of them from each counter, which is mixed with the seed twice."""
    blocks = -(-count // (2 * BLOCK))
    counters = torch.arange(blocks * BLOCK, device=device).view(blocks, BLOCK) & _LOW
    bits = _mix_bits((_mix_bits(counters ^ (seed & _LOW)) + (seed >> 32)) & _LOW)
    return torch.cat([bits & (CHANCES - 1), bits >> 16], 1).view(-1)[:count]


def _mix_bits(x: Tensor) -> Tensor:
    """A hash of 32 bits, held in 64: every bit affects every bit."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _LOW
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _LOW
    return x ^ (x >> 15)
