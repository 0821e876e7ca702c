"""RMS norm of what each head attended to."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# small beside the squares of what attention returns, and zero stays zero
EPSILON = 1e-8


class HeadNorm(nn.Module):
    """Scales the output of each head to a root mean square of 1, then by a learned factor.

    So the constant factors of a mechanism, 1/sqrt(D) and 1/sqrt(N), no longer matter.
    """

    def __init__(self, heads: int, head_width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(heads, head_width))

    def forward(self, x: Tensor) -> Tensor:
        """[B, heads, N, head_width] -> same; squares are summed in float32 or wider."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        size = torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
        return (wide * size * self.scale[:, None]).to(x.dtype)
