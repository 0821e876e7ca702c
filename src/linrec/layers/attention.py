"""Multi-head attention with any mechanism of linrec.ops, by name."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from linrec import ops
from linrec.types import InputError


class MultiHeadAttention(nn.Module):
    """Projects to queries, keys and values, attends, projects back. [B, N, width] -> same."""

    def __init__(self, mechanism: str, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        if width % heads:
            raise InputError(f"width {width} must be a multiple of heads {heads}")
        self.mechanism, self.heads, self.causal = mechanism, heads, causal
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)
        if ops.takes_decay(mechanism):
            self.decay_logit = nn.Parameter(ops.initial_decay_logits(heads))

    def log_decay(self) -> Tensor | None:
        """log g of each head, or None for a mechanism that forgets nothing."""
        return F.logsigmoid(self.decay_logit) if ops.takes_decay(self.mechanism) else None

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        out = ops.attend_projected(
            self.mechanism, self._projected(x), keep=keep, causal=self.causal,
            decay=self.log_decay(),
        )  # fmt: skip
        return self._merged(out)

    def matrix(self, x: Tensor, keep: Tensor) -> Tensor:
        """What each event takes of each other: B' [B, heads, N, N]. For analysis: O(N^2) memory."""
        q, k, _ = self._apart(x)
        return ops.attention_matrix(
            self.mechanism, q, k, keep=keep, causal=self.causal, decay=self.log_decay()
        )

    def start(self, users: int) -> ops.State:
        """The state of users without a past."""
        weight = self.project_out.weight
        return ops.start(
            self.mechanism, users, self.heads, weight.shape[0] // self.heads,
            dtype=weight.dtype, device=weight.device,
        )  # fmt: skip

    def resume(self, x: Tensor, keep: Tensor, state: ops.State) -> tuple[Tensor, ops.State]:
        """The causal form for events that go on from a state, and the state after them."""
        q, k, v = self._apart(x)
        out, state = ops.resume(self.mechanism, q, k, v, state, keep=keep, decay=self.log_decay())
        return self._merged(out), state

    def _projected(self, x: Tensor) -> Tensor:
        """[B, N, width] -> q, k and v of each event, [B, N, 3, heads, width / heads]."""
        projected: Tensor = self.project_in(x)
        return projected.view(*x.shape[:2], 3, self.heads, x.shape[2] // self.heads)

    def _apart(self, x: Tensor) -> Tensor:
        """q, k and v one after the other: [3, B, heads, N, width / heads]."""
        return self._projected(x).permute(2, 0, 3, 1, 4)

    def _merged(self, out: Tensor) -> Tensor:
        projected: Tensor = self.project_out(out.transpose(1, 2).flatten(-2))
        return projected
