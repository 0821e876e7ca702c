"""The paper's ablation "w/o L2 norm"."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.ops.linrec import LinRec


class LinRecWithoutNorm(LinRec):
    """The norms are gone, the factors 1/sqrt(D) and 1/sqrt(N) stay, so only the norm is ablated."""

    def query(self, q: Tensor) -> Tensor:
        return F.elu(q) / math.sqrt(q.shape[-1])

    def normalise(self, x: Tensor, column: Tensor, count: Tensor) -> Tensor:
        del column
        return x * torch.rsqrt(count.clamp(min=1.0))
