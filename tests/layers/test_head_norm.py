"""The norm of each head, against the formula number by number."""

from __future__ import annotations

import pytest
import torch

from linrec.layers.head_norm import HeadNorm


def test_it_is_the_formula() -> None:
    torch.manual_seed(0)
    x, norm = torch.randn(2, 3, 5, 4, dtype=torch.float64), HeadNorm(3, 4).double()
    with torch.no_grad():
        norm.scale.normal_()
    out = norm(x)
    for b, h, n in [(0, 0, 0), (1, 2, 4), (0, 1, 3)]:
        row = x[b, h, n]
        expected = norm.scale[h] * row / (row.square().sum() / 4).sqrt()
        torch.testing.assert_close(out[b, h, n], expected, rtol=1e-6, atol=1e-6)


def test_gradients() -> None:
    norm = HeadNorm(2, 3).double()
    x = torch.randn(1, 2, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, scale: torch.func.functional_call(norm, {"scale": scale}, x), (x, norm.scale)
    )


@pytest.mark.parametrize("factor", [1e-2, 1.0, 1e3])
def test_a_constant_factor_does_not_matter(factor) -> None:
    x, norm = torch.randn(1, 2, 3, 16), HeadNorm(2, 16)
    torch.testing.assert_close(norm(factor * x), norm(x), rtol=1e-3, atol=1e-3)


def test_padding_stays_zero_and_has_a_finite_gradient() -> None:
    x = torch.zeros(1, 1, 2, 4, requires_grad=True)
    out = HeadNorm(1, 4)(x)
    out.sum().backward()
    assert out.abs().sum() == 0
    assert x.grad.isfinite().all()


def test_bfloat16_comes_back_as_bfloat16() -> None:
    x, norm = torch.randn(1, 2, 3, 16), HeadNorm(2, 16)
    out = norm(x.bfloat16())
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), norm(x), rtol=2e-2, atol=2e-2)
