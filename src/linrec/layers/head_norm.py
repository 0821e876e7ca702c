"""RMS norm of what each head attended to."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from linrec.ops.head_norm import head_norm


class HeadNorm(nn.Module):
    """Scales the output of each head to a root mean square of 1, then by a learned factor.

    So the constant factors of a mechanism, 1/sqrt(D) and 1/sqrt(N), no longer matter.
    """

    def __init__(self, heads: int, head_width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(heads, head_width))

    def forward(self, x: Tensor) -> Tensor:
        """[B, heads, N, head_width] -> same."""
        return head_norm(x, self.scale)
