"""An empty history is no special case for the caller."""

from __future__ import annotations

import pytest
import torch

from linrec import ops
from linrec.losses import full_softmax


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mechanism", ops.MECHANISMS)
def test_no_events_give_no_outputs(mechanism: str, causal: bool) -> None:
    nothing = torch.empty(2, 3, 0, 8)
    assert ops.attend(mechanism, nothing, nothing, nothing, causal=causal).shape == (2, 3, 0, 8)


def test_no_events_leave_the_state_alone() -> None:
    state, nothing = ops.start("linrec", 2, 3, 8), torch.empty(2, 3, 0, 8)
    assert ops.resume("linrec", nothing, nothing, nothing, state)[1] is state


def test_a_state_never_sums_in_half_precision() -> None:
    assert ops.start("linrec", 1, 1, 8, dtype=torch.bfloat16).memory.dtype == torch.float32


def test_no_targets_cost_nothing() -> None:
    hidden = torch.randn(2, 3, 4, requires_grad=True)
    loss = full_softmax(hidden, torch.randn(5, 4), torch.zeros(2, 3, dtype=torch.long))
    loss.backward()
    assert loss == 0
    assert hidden.grad is not None
    assert not hidden.grad.any()
