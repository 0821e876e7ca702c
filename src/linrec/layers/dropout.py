"""Dropout as torch has it, for less: its own draws one number at a time, on one thread."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHANCES = 2**16  # a draw of 64 bits decides on four numbers
DRAWN = 64 // 16


class Dropout(nn.Module):
    """Zeroes a share of the numbers in training and enlarges the others by as much."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.share:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.share)
        return x * _noise(x, self.share)

    def extra_repr(self) -> str:
        return str(self.share)


def _noise(like: Tensor, share: float) -> Tensor:
    """Zeros, about this share of them, and numbers that make up for them."""
    count = like.numel()
    bits = torch.empty(-(-count // DRAWN), dtype=torch.int64).random_(-(2**63), None)
    dropped = round(share * CHANCES)
    kept = bits.view(torch.int16)[:count].view(like.shape) >= dropped - CHANCES // 2
    return kept.to(like.dtype).mul_(CHANCES / (CHANCES - dropped))
