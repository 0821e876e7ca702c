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


def dropout(x: Tensor, share: float, seed: int, first: int = 0) -> Tensor:
    """Zero a share of the numbers of x and scale the others to keep the mean.

    first: the index of the first number, if x is a part of something larger.
    """
    threshold = round(share * CHANCES)
    out: Tensor = _Dropout.apply(x, threshold, seed, first)  # type: ignore[no-untyped-call]
    return out


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int, seed: int, first: int) -> Tensor:
        ctx.drawn = threshold, seed, first
        return _apply(x, threshold, seed, first)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        gradient: Tensor = _Dropout.apply(gradients[0], *ctx.drawn)  # type: ignore[no-untyped-call]
        return gradient, None, None, None


def _apply(x: Tensor, threshold: int, seed: int, first: int) -> Tensor:
    scale = CHANCES / max(CHANCES - threshold, 1)
    # neighbouring seeds then differ in all bits; done here because torch's profiler takes no
    # argument of a Function beyond 63 bits
    spread_seed = seed * 0x9E3779B97F4A7C15 % 2**64
    unaligned = first % (2 * BLOCK)
    if fused.takes(x) and not unaligned:
        return rows.dropout(x, spread_seed, threshold, scale, first)
    drawn = draws(unaligned + x.numel(), spread_seed, x.device, first - unaligned)[unaligned:]
    kept = drawn.view(x.shape) >= threshold
    # in float32 or wider and rounded once, as the kernel does
    wide = torch.promote_types(x.dtype, torch.float32)
    return (kept.to(wide).mul_(scale) * x).to(x.dtype)


def draws(count: int, seed: int, device: torch.device | str = "cpu", first: int = 0) -> Tensor:
    """Numbers below 65,536, two of them from each counter, which is mixed with the seed twice.

    first: the index of the first number, a multiple of two blocks.
    """
    blocks = -(-count // (2 * BLOCK))
    counters = (first // 2 + torch.arange(blocks * BLOCK, device=device)).view(blocks, BLOCK) & _LOW
    bits = _mix_bits((_mix_bits(counters ^ (seed & _LOW)) + (seed >> 32)) & _LOW)
    return torch.cat([bits & (CHANCES - 1), bits >> 16], 1).view(-1)[:count]


def _mix_bits(x: Tensor) -> Tensor:
    """A hash of 32 bits, held in 64: every bit affects every bit."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _LOW
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _LOW
    return x ^ (x >> 15)
