"""The block's two orders, and events as vectors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from linrec.layers import Block, EventEmbedding, FeedForward, MultiHeadAttention
from linrec.types import PAD


class Double(nn.Module):
    def forward(self, x: torch.Tensor, keep: torch.Tensor | None = None) -> torch.Tensor:
        del keep
        return 2 * x


def test_post_norm_normalises_each_sum() -> None:
    x = torch.randn(2, 5, 8)
    block = Block(8, Double(), Double(), dropout=0.0, norm="post")
    norm = nn.LayerNorm(8)
    torch.testing.assert_close(block(x, x), norm(3 * norm(3 * x)))


def test_pre_norm_normalises_each_input() -> None:
    x = torch.randn(2, 5, 8)
    block = Block(8, Double(), Double(), dropout=0.0, norm="pre")
    norm = nn.LayerNorm(8)
    middle = x + 2 * norm(x)
    torch.testing.assert_close(block(x, x), middle + 2 * norm(middle))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_dropout_acts_in_training_only(norm) -> None:
    x, keep = torch.randn(1, 6, 8), torch.ones(1, 6, dtype=torch.bool)
    attention = MultiHeadAttention("linrec", 8, 2, causal=True)
    block = Block(8, attention, FeedForward(8, 16), dropout=0.5, norm=norm)
    assert not torch.equal(block(x, keep), block(x, keep))
    block.eval()
    assert torch.equal(block(x, keep), block(x, keep))


def test_feed_forward_sees_each_position_alone() -> None:
    layer, x = FeedForward(8, 32), torch.randn(2, 5, 8)
    torch.testing.assert_close(layer(x)[:, 3], layer(x[:, 3]))


def test_positions_are_clamped_at_the_last_learned_one() -> None:
    embedding = EventEmbedding(n_items=9, width=8, positions=4, dropout=0.0)
    out = embedding(torch.full((1, 10), 5))
    assert out.shape == (1, 10, 8)
    for place in range(4, 10):
        assert torch.equal(out[0, place], out[0, 3])
    assert not torch.equal(out[0, 2], out[0, 3])


def test_padding_gets_no_gradient() -> None:
    embedding = EventEmbedding(n_items=9, width=8, positions=4, dropout=0.0)
    embedding(torch.tensor([[3, 4, PAD, PAD]])).square().sum().backward()
    grad = embedding.item.weight.grad
    assert (grad[PAD] == 0).all()
    assert (grad[3] != 0).any()
