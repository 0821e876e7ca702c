"""RMS norm of each head's output, with a learned scale."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linrec.ops import rows

# small beside the squares of what attention returns, and zero stays zero
EPSILON = 1e-8


def head_norm(x: Tensor, scale: Tensor) -> Tensor:
    """x: [B, H, N, D] -> same: x / sqrt(mean of x^2 + epsilon) * scale [H, D].

    Squares are summed in float32 or wider.
    """
    if not rows.takes_heads(x, scale):
        return _by_torch(x, scale)
    out: Tensor = _HeadNorm.apply(x, scale)  # type: ignore[no-untyped-call]
    return out


def _by_torch(x: Tensor, scale: Tensor) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    size = torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
    return (wide * size * scale[:, None]).to(x.dtype)


class _HeadNorm(torch.autograd.Function):
    """Keeps its input alone; autograd would keep four tensors of its size."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale)
        return rows.head_norm(x, scale, EPSILON)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        x, scale = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return rows.head_norm_backward(x, scale, EPSILON, gradients[0])
        # a gradient of this gradient will be needed
        return torch.autograd.grad(_by_torch(x, scale), (x, scale), gradients, create_graph=True)
