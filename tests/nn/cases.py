"""Inputs and masks for attention with torch.nn's face."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from linrec.nn import MultiheadAttention

BATCH, LENGTH, WIDTH, HEADS = 3, 9, 16, 2
INF = float("-inf")


def random_input(seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, LENGTH, WIDTH, generator=rng).to(dtype)


def pair(mechanism: str = "softmax", **settings: Any) -> tuple[nn.Module, MultiheadAttention]:
    """torch's module and ours with copies of its weights, biases included."""
    torch.manual_seed(3)
    settings = {"batch_first": True, "dtype": torch.float64} | settings
    theirs = nn.MultiheadAttention(WIDTH, HEADS, **settings)
    ours = MultiheadAttention(WIDTH, HEADS, mechanism=mechanism, **settings)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)  # biases too: a zero one could be anywhere
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def of(mechanism: str, **settings: Any) -> MultiheadAttention:
    return pair(mechanism, **settings)[1]


def hidden_at_the_end(batch: int = BATCH, length: int = LENGTH) -> Tensor:
    """True on padding, as torch.nn has it: three rows of 5, 9 and 1 events, and so on."""
    events = torch.tensor([5, length, 1])[torch.arange(batch) % 3]
    return torch.arange(length) >= events[:, None]


def future(length: int = LENGTH) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def added(hidden: Tensor, by: float = INF) -> Tensor:
    return torch.zeros(hidden.shape, dtype=torch.float64).masked_fill(hidden, by)


def each_head(hidden: Tensor) -> Tensor:
    """[B, N, N] or [N, N] -> [B * heads, N, N]."""
    hidden = hidden.expand(BATCH, LENGTH, LENGTH)
    return hidden.repeat_interleave(HEADS, 0)


def merged(hidden: Tensor) -> Tensor:
    """Padding and future in one mask whose diagonal is open, as RecTools and RePlay have it."""
    both = hidden[:, None, :] | future()
    return both & ~torch.eye(LENGTH, dtype=torch.bool)


@dataclass(frozen=True)
class Masked:
    """The same call in one form of its masks."""

    name: str
    make: Callable[[], dict[str, Any]]

    def __repr__(self) -> str:
        return self.name


PADDING = [
    Masked("bool padding", lambda: {"key_padding_mask": hidden_at_the_end()}),
    Masked("added padding", lambda: {"key_padding_mask": added(hidden_at_the_end())}),
    Masked(
        "padding for each head",
        lambda: {"attn_mask": each_head(hidden_at_the_end()[:, None].expand(-1, LENGTH, -1))},
    ),
    Masked("padding at the start", lambda: {"key_padding_mask": hidden_at_the_end().flip(1)}),
]
CAUSAL = [
    Masked("bool causal", lambda: {"attn_mask": future()}),
    Masked("added causal", lambda: {"attn_mask": added(future())}),
    Masked("causal for each head", lambda: {"attn_mask": each_head(future())}),
    Masked("causal and hinted", lambda: {"attn_mask": future(), "is_causal": True}),
]
BOTH = [
    Masked(
        "causal and padding",
        lambda: {"attn_mask": future(), "key_padding_mask": hidden_at_the_end()},
    ),
    Masked(
        "causal and padding, added",
        lambda: {"attn_mask": added(future()), "key_padding_mask": added(hidden_at_the_end())},
    ),
    Masked(
        "merged, padded at the end", lambda: {"attn_mask": each_head(merged(hidden_at_the_end()))}
    ),
    Masked(
        "merged, padded at the start",
        lambda: {"attn_mask": each_head(merged(hidden_at_the_end().flip(1)))},
    ),
]
NONE = [Masked("no mask", dict)]
EVERY = NONE + PADDING + CAUSAL + BOTH
