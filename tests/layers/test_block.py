"""The block: its two orders, dropout, and events that go on from a state."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from linrec.layers import Block, FeedForward, MultiHeadAttention


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


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_resumed_is_whole(norm) -> None:
    """From the state of no past, all events; then cut in two."""
    x, keep = torch.randn(2, 9, 8), torch.arange(9) < torch.tensor([[9], [7]])
    attention = MultiHeadAttention("linrec-decay", 8, 2, causal=True)
    block = Block(8, attention, FeedForward(8, 16), dropout=0.0, norm=norm)
    whole = block(x, keep)
    first, state = block.resume(x[:, :4], keep[:, :4], attention.start(2))
    second, _ = block.resume(x[:, 4:], keep[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], 1)[keep], whole[keep])
