"""Cross-entropy over the catalogue, however it is chunked, is cross-entropy."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.losses import full_softmax
from linrec.losses.softmax import SCORES
from linrec.types import PAD


def inputs(n_items: int = 300, share: float = 0.7) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    targets = torch.randint(1, n_items + 1, (4, 25))
    targets[torch.rand(4, 25) > share] = PAD
    return torch.randn(4, 25, 16), torch.randn(n_items + 1, 16) / 4, targets


def plain(hidden: Tensor, items: Tensor, targets: Tensor, bias: Tensor | None = None) -> Tensor:
    """Position by position: minus the log of the target's share among items 1, 2, ..."""
    offset = torch.zeros(len(items)) if bias is None else bias
    each = [
        -F.log_softmax(items[1:] @ hidden[place] + offset[1:], 0)[targets[place] - 1]
        for place in map(tuple, (targets != PAD).nonzero())
    ]
    return torch.stack(each).mean()


@pytest.mark.parametrize("n_items", [1, 7, 300, 5_000])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_it_is_cross_entropy(n_items, dtype, tolerance) -> None:
    hidden, items, targets = inputs(n_items)
    hidden, items = hidden.to(dtype).float(), items.to(dtype).float()
    given = [x.clone().requires_grad_() for x in (hidden.to(dtype), items)]
    wanted = [x.clone().requires_grad_() for x in (hidden, items)]
    loss, expected = full_softmax(*given, targets), plain(*wanted, targets)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss.float(), expected, rtol=tolerance, atol=tolerance)
    for found, right in zip(given, wanted, strict=True):
        scale = right.grad.abs().max().item()
        torch.testing.assert_close(
            found.grad.float(), right.grad, rtol=tolerance, atol=tolerance * scale + 1e-7
        )


@pytest.fixture(params=[1, 7, 64, 10_000], ids="{} rows a chunk".format)
def _any_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of one row, chunks that leave a remainder, and all rows at once."""
    home = import_module("linrec.losses.softmax")  # the function hides it
    monkeypatch.setattr(home, "SCORES", 0)
    monkeypatch.setattr(home, "MIN_ROWS", request.param)


def with_bias(n_items: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return *inputs(n_items), 2 * torch.randn(n_items + 1)


@pytest.mark.usefixtures("_any_chunks")
@pytest.mark.parametrize("n_items", [7, 300])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_with_a_bias_it_is_cross_entropy_of_shifted_scores(n_items, dtype, tolerance) -> None:
    hidden, items, targets, bias = with_bias(n_items)
    exact = [x.to(dtype).float() for x in (hidden, items, bias)]
    given = [x.clone().requires_grad_() for x in (exact[0].to(dtype), *exact[1:])]
    wanted = [x.clone().requires_grad_() for x in exact]
    loss = full_softmax(*given[:2], targets, given[2])
    expected = plain(*wanted[:2], targets, wanted[2])
    loss.backward()
    expected.backward()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=tolerance, atol=tolerance)
    for found, right in zip(given, wanted, strict=True):
        scale = right.grad.abs().max().item()
        torch.testing.assert_close(
            found.grad.float(), right.grad, rtol=tolerance, atol=tolerance * scale + 1e-7
        )


def test_no_bias_is_a_bias_of_zero() -> None:
    hidden, items, targets, bias = with_bias(300)
    without = full_softmax(hidden, items, targets)
    torch.testing.assert_close(
        full_softmax(hidden, items, targets, torch.zeros_like(bias)), without
    )
    assert not torch.isclose(full_softmax(hidden, items, targets, bias), without)


def test_the_bias_of_padding_is_never_learned() -> None:
    hidden, items, targets, bias = with_bias(300)
    loud = bias.clone()
    loud[PAD] = 1e3
    loud.requires_grad_()
    loss = full_softmax(hidden, items, targets, loud)
    torch.testing.assert_close(loss, full_softmax(hidden, items, targets, bias))
    loss.backward()
    assert loud.grad[PAD] == 0
    assert (loud.grad[1:] != 0).all()


def test_positions_without_a_target_do_not_count() -> None:
    hidden, items, targets = inputs()
    hidden.requires_grad_()
    full_softmax(hidden, items, targets).backward()
    assert (hidden.grad[targets == PAD] == 0).all()
    assert (hidden.grad[targets != PAD] != 0).any()
    other = hidden.detach().where((targets != PAD)[..., None], torch.tensor(1e3))
    torch.testing.assert_close(
        full_softmax(other, items, targets), full_softmax(hidden, items, targets)
    )


def test_padding_is_never_the_answer() -> None:
    """The vector of PAD is no competitor, however well it fits."""
    hidden, items, targets = inputs()
    loud = items.clone()
    loud[PAD] = 1e3
    loud.requires_grad_()
    loss = full_softmax(hidden, loud, targets)
    torch.testing.assert_close(loss, full_softmax(hidden, items, targets))
    loss.backward()
    assert (loud.grad[PAD] == 0).all()


def test_knowing_nothing_costs_the_log_of_the_catalogue() -> None:
    hidden, items, targets = inputs(n_items=100)
    loss = full_softmax(torch.zeros_like(hidden), items, targets)
    assert loss.item() == pytest.approx(torch.tensor(100.0).log().item())


def test_a_gradient_goes_back_as_often_as_it_is_asked_for() -> None:
    """And in proportion to what comes from above: the loss may be scaled, or be part of a sum."""
    hidden, items, targets, bias = (x.requires_grad_() if x.is_floating_point() else x
                                    for x in with_bias(50))  # fmt: skip
    loss = full_softmax(hidden, items, targets, bias)
    once = torch.autograd.grad(loss, [hidden, items, bias], retain_graph=True)
    thrice = torch.autograd.grad(3 * loss, [hidden, items, bias])
    for one, three in zip(once, thrice, strict=True):
        torch.testing.assert_close(three, 3 * one)


def test_gradients_are_the_slopes() -> None:
    hidden, items, targets, bias = with_bias(9)
    given = [x.double().requires_grad_() for x in (hidden[:2, :4], items, bias)]
    assert torch.autograd.gradcheck(
        lambda h, v, b: full_softmax(h, v, targets[:2, :4], b), given, fast_mode=True
    )


def test_scores_of_any_size_stay_finite() -> None:
    hidden, items, targets = inputs()
    loss = full_softmax(1e4 * hidden, items, targets)
    assert loss.isfinite()
    torch.testing.assert_close(loss, plain(1e4 * hidden, items, targets))


def test_the_matrix_of_scores_is_never_held() -> None:
    """2,000 targets and 20,000 items: 160 MB of scores, 5 MB of which exist at a time."""
    torch.manual_seed(0)
    hidden, items = torch.randn(2_000, 4, requires_grad=True), torch.randn(20_001, 4)
    targets = torch.randint(1, 20_001, (2_000,))
    with torch.profiler.profile(profile_memory=True) as seen:
        full_softmax(hidden, items, targets).backward()
    largest = max(event.self_cpu_memory_usage for event in seen.events())
    assert largest < 3 * 4 * SCORES
