"""A stack of Transformer blocks over events and their positions in the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from linrec.data.dataset.item_features import MISSING, Field
from linrec.layers.attention import MultiHeadAttention
from linrec.layers.block import Block, FeedForward, Norm
from linrec.layers.context import ContextEmbedding
from linrec.layers.dropout import Dropout
from linrec.layers.time import GapEmbedding
from linrec.ops import State

Gaps = tuple[Tensor, Tensor]


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
    head_norm: bool = False
    gate: bool = False
    time_gaps: bool = False  # whether events know the time to their neighbours
    context: tuple[Field, ...] = ()  # what else is known of an event


@dataclass(frozen=True, slots=True)
class StackState:
    """All that a stack remembers of each user's history."""

    seen: Tensor  # [B], events so far
    layers: tuple[State, ...]  # of each block's attention


class Stack(nn.Module):
    """Event vectors plus positions, gaps and context, normalised, with dropout, then blocks.

    Positions count from the oldest event and are clamped at the last learned one, so that a
    history of any length has an encoding.
    """

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.position = nn.Embedding(shape.positions, shape.width)
        self.gaps = GapEmbedding(shape.width) if shape.time_gaps else None
        self.context = ContextEmbedding(shape.context, shape.width) if shape.context else None
        self.norm = nn.LayerNorm(shape.width)
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(_block(shape) for _ in range(shape.layers))
        # post-norm blocks end in a norm already; a pre-norm stack leaves its sum unnormalised
        self.final_norm = nn.LayerNorm(shape.width) if shape.norm == "pre" else nn.Identity()

    def forward(
        self,
        events: Tensor,
        keep: Tensor,
        state: StackState | None = None,
        gaps: Gaps | None = None,
        context: Tensor | None = None,
    ) -> tuple[Tensor, StackState | None]:
        """events: [B, N, width], keep: [B, N] -> hidden [B, N, width].

        gaps: seconds before and after each event, [B, N] both; None if they are unknown. context:
        [B, N, fields], codes of what else is known of each event; None if it is missing.
        With a state the events follow it, and the state after them is returned; without one they
        are the whole history, and None is returned.
        """
        x = events + self.position(self._positions(keep, state))
        if self.gaps is not None:
            x = x + self.gaps(*(gaps or _unknown(keep)))
        if self.context is not None:
            x = x + self.context(self._missing(keep) if context is None else context)
        x = self.dropout(self.norm(x))
        if state is None:
            for block in self._blocks:
                x = block(x, keep)
            return self.final_norm(x), None
        final = []
        for block, initial_state in zip(self._blocks, state.layers, strict=True):
            x, final_state = block.resume(x, keep, initial_state)
            final.append(final_state)
        return self.final_norm(x), StackState(state.seen + keep.sum(1), tuple(final))

    def start(self, users: int) -> StackState:
        """The state of users without events."""
        device = self.position.weight.device
        seen = torch.zeros(users, dtype=torch.int64, device=device)
        return StackState(seen, tuple(block.attention.start(users) for block in self._blocks))

    def _missing(self, keep: Tensor) -> Tensor:
        assert self.context is not None
        shape = (*keep.shape, len(self.context.fields))
        return torch.full(shape, MISSING, device=keep.device)

    @property
    def _blocks(self) -> Sequence[Block]:
        return cast("Sequence[Block]", self.blocks)

    def _positions(self, keep: Tensor, state: StackState | None) -> Tensor:
        if state is None:
            positions = torch.arange(keep.shape[1], device=keep.device)
        else:
            positions = state.seen[:, None] + (keep.cumsum(1) - 1).clamp(min=0)
        return positions.clamp(max=self.position.num_embeddings - 1)


def _unknown(keep: Tensor) -> Gaps:
    gaps = torch.full(keep.shape, torch.nan, dtype=torch.float64, device=keep.device)
    return gaps, gaps


def _block(shape: StackShape) -> Block:
    attention = MultiHeadAttention(
        shape.attention, shape.width, shape.heads,
        causal=shape.causal, head_norm=shape.head_norm, gate=shape.gate,
    )  # fmt: skip
    feed_forward = FeedForward(shape.width, shape.inner)
    return Block(shape.width, attention, feed_forward, shape.dropout, shape.norm)
