"""The linear forms hold no tensor that grows faster than the history."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from linrec import ops
from tests.ops.cases import LINEAR, Padding, attend, random_case, values_and_grads

EITHER_WAY = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])


class Allocations(TorchDispatchMode):
    """Counts the numbers in the tensors made within it; a view of a given tensor makes none."""

    largest = total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in tensors((args, kwargs))}
        for x in tensors(made):
            if x.untyped_storage().data_ptr() not in given:
                numbers = x.untyped_storage().nbytes() // x.element_size()
                self.largest = max(self.largest, numbers)
                self.total += numbers
        return made


def tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def allocations(mechanism: str, causal: bool, length: int, padding: Padding) -> Allocations:
    """In the forward and in the backward pass."""
    case = random_case(length, batch=1, heads=2, padding=padding, dtype=torch.float32)
    with Allocations() as seen:
        values_and_grads(lambda x: attend(mechanism, x, causal), case)
    return seen


@pytest.mark.parametrize("padding", ["none", "random"])
@EITHER_WAY
@pytest.mark.parametrize("mechanism", LINEAR)
def test_memory_grows_with_the_length_alone(mechanism, causal, padding) -> None:
    short, long = (allocations(mechanism, causal, n, padding) for n in (1000, 4000))
    assert long.largest <= 4.15 * short.largest
    assert long.largest < 4000**2
    # what is written in all follows suit, so time does too
    assert long.total <= 4.15 * short.total


def test_the_measure_sees_a_quadratic_form() -> None:
    with Allocations() as seen:
        case = random_case(1000, batch=1, dtype=torch.float32)
        ops.attention_matrix("linrec", case.q, case.k)
    assert seen.largest >= 1000**2


@pytest.mark.slow
@EITHER_WAY
@pytest.mark.parametrize("mechanism", LINEAR)
def test_a_hundred_thousand_events(mechanism, causal) -> None:
    case = random_case(100_000, batch=1, heads=1, padding="random", dtype=torch.float32)
    if mechanism in ("linrec", "linrec-decay"):
        actual = values_and_grads(lambda x: attend(mechanism, x, causal), case)
        assert all(x.isfinite().all() for x in actual.values())
    else:
        assert attend(mechanism, case, causal).isfinite().all()
