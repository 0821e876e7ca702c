"""One weight a position, learned from what the encoder says of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from linrec.layers import WeightedMean
from linrec.ops import reference


def inputs(length: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    x, hidden = (torch.randn(2, length, 6, generator=rng) for _ in range(2))
    return x, hidden, torch.arange(length) < torch.tensor([[length], [length - 4]])


def test_it_weighs_x_by_what_hidden_says() -> None:
    x, hidden, keep = inputs()
    layer = WeightedMean(6)
    logit = hidden @ layer.weigh.weight[0]
    mean, _ = layer(x, hidden, keep)
    assert mean.shape == x.shape
    torch.testing.assert_close(mean.double(), reference.running_mean(x, logit, keep=keep))


def test_the_first_event_is_its_own_mean() -> None:
    x, hidden, keep = inputs()
    torch.testing.assert_close(WeightedMean(6)(x, hidden, keep)[0][:, 0], x[:, 0])


def test_the_weight_is_learned() -> None:
    x, hidden, keep = inputs()
    layer = WeightedMean(6)
    layer(x, hidden, keep)[0][keep].square().sum().backward()
    assert (layer.weigh.weight.grad != 0).all()


def test_a_position_that_speaks_loudest_is_the_mean() -> None:
    x, _, keep = inputs()
    layer = WeightedMean(6)
    with torch.no_grad():
        layer.weigh.weight.fill_(1e3)
    hidden = torch.zeros_like(x)
    hidden[:, 2] = 1.0
    mean, _ = layer(x, hidden, keep)
    torch.testing.assert_close(mean[:, 2:], x[:, 2:3].expand(-1, 7, -1))


@pytest.mark.parametrize("cut", [1, 4, 8])
def test_resumed_is_whole(cut: int) -> None:
    x, hidden, keep = inputs()
    layer = WeightedMean(6)
    whole, last = layer(x, hidden, keep)
    first, state = layer(x[:, :cut], hidden[:, :cut], keep[:, :cut], layer.start(2))
    second, after = layer(x[:, cut:], hidden[:, cut:], keep[:, cut:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(after.total, last.total)
    assert torch.equal(after.peak, last.peak)


def test_mixed_precision_follows_float32() -> None:
    x, hidden, keep = inputs()
    layer = WeightedMean(6)
    with torch.autocast("cpu", torch.bfloat16):
        mean, state = layer(x, hidden, keep)
    assert state.total.dtype == torch.float32
    torch.testing.assert_close(mean, layer(x, hidden, keep)[0], rtol=0.02, atol=0.02)
