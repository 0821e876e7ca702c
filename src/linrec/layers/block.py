"""The Transformer block: attention, then feed-forward, each with residual, dropout and norm."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from linrec.layers.attention import MultiHeadAttention
from linrec.layers.dropout import Dropout
from linrec.ops import State

Norm = Literal["post", "pre"]


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, inner)
        self.narrow = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        narrowed: Tensor = self.narrow(F.gelu(self.widen(x)))
        return narrowed


class Block(nn.Module):
    """post: x = LN(x + f(x)), the paper's order. pre: x = x + f(LN(x)), steadier when deep."""

    def __init__(
        self,
        width: int,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        dropout: float,
        norm: Norm,
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward, self.norm = attention, feed_forward, norm
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return self._after(x, self.attention(self._before(x), keep))

    def resume(self, x: Tensor, keep: Tensor, state: State) -> tuple[Tensor, State]:
        """The same for events that follow a state, and the state after them."""
        attended, state = self.attention.resume(self._before(x), keep, state)
        return self._after(x, attended), state

    def _before(self, x: Tensor) -> Tensor:
        return self.attention_norm(x) if self.norm == "pre" else x

    def _after(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.dropout(attended)
        if self.norm == "pre":
            fed: Tensor = self.dropout(self.feed_forward(self.feed_forward_norm(x)))
            return x + fed
        x = self.attention_norm(x)
        normed: Tensor = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return normed
