"""The Transformer block: attention, then feed-forward, each with residual, dropout and norm."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

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
        self, width: int, attention: nn.Module, feed_forward: nn.Module, dropout: float, norm: Norm
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward, self.norm = attention, feed_forward, norm
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        if self.norm == "pre":
            x = x + self.dropout(self.attention(self.attention_norm(x), keep))
            x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        else:
            x = self.attention_norm(x + self.dropout(self.attention(x, keep)))
            x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x
