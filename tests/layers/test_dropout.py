"""Dropout drops what it says, keeps the mean, and follows the seed."""

from __future__ import annotations

import pytest
import torch

from linrec.layers import Dropout


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(1_001, 301), (3, 1_000, 101)])
def test_it_drops_its_share_and_keeps_the_mean(share: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.ones(shape, requires_grad=True)
    out = Dropout(share).train()(x)
    assert (out == 0).float().mean().item() == pytest.approx(share, abs=0.005)
    assert out.mean().item() == pytest.approx(1, abs=0.02)
    assert len(out.detach().unique()) == 2
    out.sum().backward()
    assert torch.equal(x.grad, out)


def test_neighbours_are_dropped_independently() -> None:
    """Two that are 16 apart come from one counter."""
    torch.manual_seed(0)
    kept = (Dropout(0.3).train()(torch.ones(400_000)) != 0).float()
    for apart in (1, 2, 3, 4, 16):
        both = (kept[apart:] * kept[:-apart]).mean().item()
        assert both == pytest.approx(0.49, abs=0.005)


def test_the_seed_decides() -> None:
    actual = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        actual.append(Dropout(0.3).train()(torch.ones(999)))
    assert torch.equal(actual[0], actual[1])
    assert not torch.equal(actual[0], actual[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_of_any_precision_shape_and_stride(dtype: torch.dtype) -> None:
    x = torch.randn(7, 5, 3).to(dtype).transpose(0, 2)
    out = Dropout(0.5).train()(x)
    assert out.dtype == dtype
    assert out.shape == x.shape
    assert ((out == 0) | (out == 2 * x)).all()
    assert Dropout(0.5).train()(x[:0]).shape == (0, 5, 7)


def test_only_in_training_and_only_if_asked() -> None:
    x = torch.randn(4, 4)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
