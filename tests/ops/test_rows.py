"""Kernels that take numbers one after the other: equal to their forms in torch."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from linrec import ops
from linrec.ops import rows
from linrec.ops.cross_entropy import cross_entropy_
from linrec.ops.dropout import draws, dropout
from linrec.ops.head_norm import head_norm
from linrec.types import SeenItems

compiled = pytest.mark.skipif(ops.kernels().startswith("off"), reason=ops.kernels())


def seen_by(rows: int, size: int) -> SeenItems:
    """Two rows share a list of which each has the beginning; one has seen nothing."""
    counts = torch.arange(rows) % 4 % (size + 1)
    items = 1 + torch.randint(size, (int(counts.max()) + 3,))
    return SeenItems(items, torch.arange(rows) % 3, counts)


@compiled
@pytest.mark.parametrize("size", [1, 7, 31, 32, 33, 1_000, 3_416])
@pytest.mark.parametrize("spread", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("hiding", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cross_entropy(size: int, spread: float, hiding: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    scores = (spread * torch.randn(9, size) - 5).to(dtype)
    labels, seen = torch.randint(size, (9,)), seen_by(9, size) if hiding else None
    fast, slow = scores.clone(), scores.clone()
    whole, loss = cross_entropy_(fast, labels, seen)
    with ops.without_kernels():
        expected_whole, expected_loss = cross_entropy_(slow, labels, seen)
    torch.testing.assert_close(whole, expected_whole)
    torch.testing.assert_close(loss, expected_loss)
    torch.testing.assert_close(fast, slow)
    assert loss.dtype == torch.float32


def test_cross_entropy_is_the_formula() -> None:
    torch.manual_seed(0)
    scores = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 3, 7, 2, 2])
    hidden = [[], [0, 1], [7], [5], [2, 6]]  # of which two are the targets themselves
    competing = scores.clone()
    for row, columns in enumerate(hidden):
        for column in set(columns) - {int(labels[row])}:
            competing[row, column] = -torch.inf
    expected = torch.nn.functional.cross_entropy(competing, labels, reduction="none")
    (gradient,) = torch.autograd.grad(expected.sum(), scores)
    items = torch.tensor([column + 1 for columns in hidden for column in columns])
    counts = torch.tensor([len(columns) for columns in hidden])
    seen = SeenItems(items, counts.cumsum(0) - counts, counts)
    for dtype in (torch.float64, torch.float32):
        changed = scores.detach().clone().to(dtype)
        whole, loss = cross_entropy_(changed, labels, seen)
        torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            (changed / whole[:, None]).double(), gradient, rtol=1e-5, atol=1e-6
        )


@compiled
def test_cross_entropy_of_no_number() -> None:
    scores = torch.randn(3, 100)
    scores[1, 50] = math.nan
    _, loss = cross_entropy_(scores, torch.zeros(3, dtype=torch.int64))
    assert loss.isnan().tolist() == [False, True, False]


@compiled
@pytest.mark.parametrize(
    ("labels", "seen"),
    [
        ([0, 5], None),
        ([0, -1], None),
        ([0, 1], ([6], [0, 0], [1, 0])),
        ([0, 1], ([0], [0, 0], [1, 0])),
        ([0, 1], ([1], [0, 1], [1, 1])),
        ([0, 1], ([1], [-1, 0], [1, 1])),
    ],
)
def test_what_lies_outside_the_scores_is_refused(labels: list[int], seen: Any) -> None:
    """Before a number is written."""
    scores = torch.zeros(2, 5)
    given = None if seen is None else SeenItems(*(torch.tensor(x) for x in seen))
    with pytest.raises(ValueError, match="outside"):
        cross_entropy_(scores, torch.tensor(labels), given)
    assert not scores.any()


@pytest.mark.parametrize("threads", [1, 2])
def test_cross_entropy_does_not_depend_on_threads(threads: int) -> None:
    torch.manual_seed(0)
    scores, before = torch.randn(300, 3_000), torch.get_num_threads()
    labels, alone = torch.randint(3_000, (300,)), scores.clone()
    torch.set_num_threads(1)
    expected, _ = cross_entropy_(alone, labels)
    torch.set_num_threads(threads)
    whole, _ = cross_entropy_(scores, labels)
    torch.set_num_threads(before)
    assert torch.equal(scores, alone)
    assert torch.equal(whole, expected)


@compiled
@pytest.mark.parametrize("width", [8, 16, 64, 128])
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 43), (2, 200)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_head_norm(width: int, batch: int, length: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    heads = 3
    x = torch.randn(batch, length, heads, width).to(dtype).transpose(1, 2)
    x[:, :, length // 2] = 0  # as where padded
    scale, gradient = torch.randn(heads, width), torch.randn(x.shape).to(dtype)
    found = []
    for kernels in (True, False):
        inputs = x.clone().requires_grad_(), scale.clone().requires_grad_()
        with nullcontext() if kernels else ops.without_kernels():
            assert rows.takes_heads(*inputs) == kernels
            out = head_norm(*inputs)
            found.append((out, *torch.autograd.grad(out, inputs, gradient)))
    for fast, slow in zip(*found, strict=True):
        assert fast.dtype == slow.dtype
        # the torch form rounds on the way back, once more than the kernel
        loose = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
        if fast.shape == scale.shape:
            loose = {"rtol": 1e-4, "atol": 1e-4 * length * batch}
        torch.testing.assert_close(fast, slow, **loose)


def test_head_norm_has_a_gradient_of_its_gradient() -> None:
    x = torch.randn(1, 2, 3, 8, requires_grad=True)
    scale = torch.randn(2, 8, requires_grad=True)
    x = x.transpose(1, 2).contiguous().transpose(1, 2).detach().requires_grad_()
    seconds = []
    for kernels in (True, False):
        with nullcontext() if kernels else ops.without_kernels():
            (first,) = torch.autograd.grad(head_norm(x, scale).square().sum(), x, create_graph=True)
            seconds.append(torch.autograd.grad(first.square().sum(), (x, scale)))
    for fast, slow in zip(*seconds, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_head_norm_does_not_depend_on_threads(threads: int) -> None:
    torch.manual_seed(0)
    before = torch.get_num_threads()
    x = torch.randn(4, 700, 8, 16).transpose(1, 2).requires_grad_()
    scale = torch.randn(8, 16, requires_grad=True)
    found = []
    for count in (1, threads):
        torch.set_num_threads(count)
        found.append(torch.autograd.grad(head_norm(x, scale).sum(), (x, scale)))
    torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


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
