"""Where the Triton kernels are tested, and what it means that they agree with the oracle."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from linrec import ops
from tests.ops.cases import Case, assert_same_values_and_grads, attend, oracle

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
COVERED = [
    name for name in ops.MECHANISMS if not ops.kernels(name, device=DEVICE).startswith("off")
]


def there(case: Case) -> Case:
    """The case on the device under test."""
    keep = None if case.keep is None else case.keep.to(DEVICE)
    return replace(case.map(lambda x: x.to(DEVICE)), keep=keep, decay=case.decay.to(DEVICE))


def on_device(mechanism: str, case: Case, causal: bool) -> Tensor:
    return attend(mechanism, there(case), causal).cpu()


def assert_equals_oracle(
    mechanism: str, case: Case, causal: bool, *precisions: torch.dtype
) -> None:
    assert_same_values_and_grads(
        lambda c: on_device(mechanism, c, causal),
        lambda c: oracle(mechanism, c, causal),
        case,
        precisions or (torch.float32,),
    )
