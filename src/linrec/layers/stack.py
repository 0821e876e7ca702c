"""A stack of Transformer blocks over events, each of which knows its place in the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from linrec.layers.attention import MultiHeadAttention
from linrec.layers.block import Block, FeedForward, Norm
from linrec.layers.dropout import Dropout
from linrec.ops import State


@dataclass(frozen=True, kw_only=True)
class StackShape:
    attention: str
    causal: bool
    width: int
    heads: int
    layers: int
    inner: int
    dropout: float
    norm: Norm
    positions: int


@dataclass(frozen=True, slots=True)
class StackState:
    """All that a stack remembers of each user's past."""

    seen: Tensor  # [B], events so far
    layers: tuple[State, ...]  # of each block's attention


class Stack(nn.Module):
    """Event vectors plus positions, normalised, with dropout, then blocks.

    Positions count from the oldest event and are clamped at the last learned one, so that a
    history of any length has an encoding.
    """

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.position = nn.Embedding(shape.positions, shape.width)
        self.norm = nn.LayerNorm(shape.width)
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(_block(shape) for _ in range(shape.layers))
        # post-norm blocks end in a norm already; a pre-norm stack leaves its sum unnormalised
        self.final_norm = nn.LayerNorm(shape.width) if shape.norm == "pre" else nn.Identity()

    def forward(
        self, events: Tensor, keep: Tensor, state: StackState | None = None
    ) -> tuple[Tensor, StackState | None]:
        """events: [B, N, width], keep: [B, N] -> hidden [B, N, width].

        With a state the events go on from it and the state after them comes back; without one they
        are all there is, and nothing does.
        """
        x = self.dropout(self.norm(events + self.position(self._places(keep, state))))
        if state is None:
            for block in self._blocks:
                x = block(x, keep)
            return self.final_norm(x), None
        after = []
        for block, remembered in zip(self._blocks, state.layers, strict=True):
            x, new = block.resume(x, keep, remembered)
            after.append(new)
        return self.final_norm(x), StackState(state.seen + keep.sum(1), tuple(after))

    def start(self, users: int) -> StackState:
        """The state of users without a past."""
        device = self.position.weight.device
        seen = torch.zeros(users, dtype=torch.int64, device=device)
        return StackState(seen, tuple(block.attention.start(users) for block in self._blocks))

    @property
    def _blocks(self) -> Sequence[Block]:
        return cast("Sequence[Block]", self.blocks)

    def _places(self, keep: Tensor, state: StackState | None) -> Tensor:
        if state is None:
            places = torch.arange(keep.shape[1], device=keep.device)
        else:
            places = state.seen[:, None] + (keep.cumsum(1) - 1).clamp(min=0)
        return places.clamp(max=self.position.num_embeddings - 1)


def _block(shape: StackShape) -> Block:
    attention = MultiHeadAttention(shape.attention, shape.width, shape.heads, causal=shape.causal)
    feed_forward = FeedForward(shape.width, shape.inner)
    return Block(shape.width, attention, feed_forward, shape.dropout, shape.norm)
