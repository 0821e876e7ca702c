"""Multi-head attention with any mechanism of linrec.ops, by name."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from linrec import ops
from linrec.layers.head_norm import HeadNorm
from linrec.nn import AttentionCore, merge_heads
from linrec.types import InputError


class MultiHeadAttention(AttentionCore):
    """Projects to queries, keys and values, attends, projects back. [B, N, width] -> same.

    head_norm: an RMS norm of each head's output. gate: that output times silu of a projection of x.
    """

    def __init__(
        self,
        mechanism: str,
        width: int,
        heads: int,
        *,
        causal: bool,
        head_norm: bool = False,
        gate: bool = False,
    ) -> None:
        super().__init__(mechanism)
        if width % heads:
            raise InputError(f"width {width} must be a multiple of heads {heads}")
        self.heads, self.causal = heads, causal
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)
        self.head_norm = HeadNorm(heads, width // heads) if head_norm else None
        self.gate = nn.Linear(width, width) if gate else None
        self.init_decay(heads)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return self._output(self.mix_projected(self._projected(x), keep, self.causal), x)

    def matrix(self, x: Tensor, keep: Tensor) -> Tensor:
        """The weight of each event for each other: B' [B, heads, N, N]. O(N^2) memory."""
        q, k, _ = self._split(x)
        return self.matrix_of(q, k, keep, self.causal)

    def start(self, users: int) -> ops.State:
        """The state of users without events."""
        weight = self.project_out.weight
        return ops.start(
            self.mechanism, users, self.heads, weight.shape[0] // self.heads,
            dtype=weight.dtype, device=weight.device,
        )  # fmt: skip

    def resume(self, x: Tensor, keep: Tensor, state: ops.State) -> tuple[Tensor, ops.State]:
        """The causal form for events that follow a state, and the state after them."""
        q, k, v = self._split(x)
        out, state = ops.resume(self.mechanism, q, k, v, state, keep=keep, decay=self.log_decay())
        return self._output(out, x), state

    def _projected(self, x: Tensor) -> Tensor:
        """[B, N, width] -> q, k and v of each event, [B, N, 3, heads, width / heads]."""
        projected: Tensor = self.project_in(x)
        return projected.view(*x.shape[:2], 3, self.heads, x.shape[2] // self.heads)

    def _split(self, x: Tensor) -> Tensor:
        """q, k and v: [3, B, heads, N, width / heads]."""
        return self._projected(x).permute(2, 0, 3, 1, 4)

    def _output(self, attended: Tensor, x: Tensor) -> Tensor:
        """attended: [B, heads, N, width / heads], x: what it was computed from, [B, N, width]."""
        out = merge_heads(attended if self.head_norm is None else self.head_norm(attended))
        if self.gate is not None:
            out = out * F.silu(self.gate(x))
        projected: Tensor = self.project_out(out)
        return projected
