"""Kernels that take numbers one after the other: equal to their forms in torch."""

from __future__ import annotations

import math

import pytest
import torch

from linrec import ops
from linrec.ops.dropout import draws, dropout
from linrec.ops.exponentials import exponentials_

compiled = pytest.mark.skipif(ops.kernels().startswith("off"), reason=ops.kernels())


@compiled
@pytest.mark.parametrize("size", [1, 7, 31, 32, 33, 1_000, 3_416])
@pytest.mark.parametrize("spread", [0.0, 1.0, 100.0])
def test_exponentials(size: int, spread: float) -> None:
    torch.manual_seed(0)
    scores = spread * torch.randn(9, size) - 5
    fast, slow = scores.clone(), scores.clone()
    largest, whole = exponentials_(fast)
    with ops.without_kernels():
        expected_largest, expected_whole = exponentials_(slow)
    assert torch.equal(largest, expected_largest)
    torch.testing.assert_close(whole, expected_whole)
    torch.testing.assert_close(fast, slow)
    assert torch.allclose(fast.sum(1, keepdim=True), whole)


@compiled
def test_exponentials_of_no_number() -> None:
    scores = torch.randn(3, 100)
    scores[1, 50] = math.nan
    _, whole = exponentials_(scores)
    assert whole[:, 0].isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("threads", [1, 2])
def test_exponentials_do_not_depend_on_threads(threads: int) -> None:
    torch.manual_seed(0)
    scores, before = torch.randn(300, 3_000), torch.get_num_threads()
    alone = scores.clone()
    torch.set_num_threads(1)
    _, expected = exponentials_(alone)
    torch.set_num_threads(threads)
    _, whole = exponentials_(scores)
    torch.set_num_threads(before)
    assert torch.equal(scores, alone)
    assert torch.equal(whole, expected)


@compiled
@pytest.mark.parametrize("shape", [(1,), (31,), (32,), (33,), (4, 200, 13), (70_001,)])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_draws_the_same(
    shape: tuple[int, ...], share: float, seed: int, dtype: torch.dtype
) -> None:
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    gradient = torch.randn(shape, dtype=dtype)
    fast = dropout(x, share, seed)
    (fast_gradient,) = torch.autograd.grad(fast, x, gradient)
    with ops.without_kernels():
        slow = dropout(x, share, seed)
        (slow_gradient,) = torch.autograd.grad(slow, x, gradient)
    assert torch.equal(fast, slow)
    assert torch.equal(fast_gradient, slow_gradient)


def test_dropout_has_a_gradient_of_its_gradient() -> None:
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: dropout(x, 0.4, 3), x)
    torch.autograd.gradgradcheck(lambda x: dropout(x, 0.4, 3), x)


def test_dropout_under_the_profiler() -> None:
    """Which asks for the shapes of all arguments, and took none beyond 63 bits."""
    x = torch.randn(3, 5)
    with torch.profiler.profile(record_shapes=True):
        profiled = dropout(x, 0.4, 2**62 + 1)
    assert torch.equal(profiled, dropout(x, 0.4, 2**62 + 1))


def test_draws_are_even_and_strangers() -> None:
    count = 400_000
    drawn = draws(count, 0x9E3779B97F4A7C15).double() / 2**16
    assert drawn.mean().item() == pytest.approx(0.5, abs=0.002)
    assert drawn.var().item() == pytest.approx(1 / 12, abs=0.001)
    shares = torch.histc(drawn, 64, 0, 1) / count
    assert (shares - 1 / 64).abs().max() < 0.001
    other = draws(count, 2 * 0x9E3779B97F4A7C15 % 2**64).double() / 2**16
    for apart in (0, 1, 2, 15, 16, 17, 32, 128):
        among = torch.corrcoef(torch.stack([drawn, drawn.roll(apart + 1), other.roll(apart)]))
        assert (among - torch.eye(3)).abs().max() < 0.01
