"""Cross-entropy over the catalogue, however it is chunked, is cross-entropy."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.losses import full_softmax
from linrec.types import PAD


def inputs(n_items: int = 300, share: float = 0.7) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    targets = torch.randint(1, n_items + 1, (4, 25))
    targets[torch.rand(4, 25) > share] = PAD
    return torch.randn(4, 25, 16), torch.randn(n_items + 1, 16) / 4, targets


def plain(hidden: Tensor, items: Tensor, targets: Tensor) -> Tensor:
    """Position by position: minus the log of the target's share among items 1, 2, ..."""
    each = [
        -F.log_softmax(items[1:] @ hidden[place], 0)[targets[place] - 1]
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
