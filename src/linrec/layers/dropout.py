"""Dropout as a layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrec.ops.dropout import dropout


class Dropout(nn.Module):
    """In training, zeroes a share of the numbers and scales the others to keep the mean."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.share:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.share)
        return dropout(x, self.share, int(torch.empty((), dtype=torch.int64).random_()))

    def extra_repr(self) -> str:
        return str(self.share)
