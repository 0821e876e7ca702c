"""Empty rows, vectors without direction and very large keys: never NaN, and still the formula."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
import torch

from linrec import ops
from linrec.ops import efficient
from tests.ops.cases import (
    Case,
    assert_same_values_and_grads,
    attend,
    oracle,
    random_case,
    values_and_grads,
)

EVERY_MECHANISM = pytest.mark.parametrize("mechanism", list(ops.MECHANISMS))
EITHER_WAY = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])


def finite(mechanism: str, causal: bool, case) -> dict[str, torch.Tensor]:
    actual = values_and_grads(lambda x: attend(mechanism, x, causal), case)
    for name, value in actual.items():
        assert value.isfinite().all(), f"{name} is not finite"
    return actual


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@EITHER_WAY
@EVERY_MECHANISM
def test_an_empty_row_gives_zeros_and_no_gradient(mechanism, causal, dtype) -> None:
    for padding in ("all", "end", "random"):
        case = random_case(70, seed=1, padding=padding, dtype=dtype)
        case.keep[1] = False
        actual = finite(mechanism, causal, case)
        assert (actual["out"][1] == 0).all()
        for name in ("q", "k", "v"):
            assert (actual[name][1] == 0).all()


@EITHER_WAY
@EVERY_MECHANISM
def test_a_padded_event_gives_zeros_and_gets_no_gradient(mechanism: str, causal: bool) -> None:
    case = random_case(70, seed=2, padding="random", dtype=torch.float32)
    actual = finite(mechanism, causal, case)
    padded = ~case.keep[:, None].expand(3, 2, 70)
    for name in ("out", "q", "k", "v"):
        assert (actual[name][padded] == 0).all()


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, -50.0])
@pytest.mark.parametrize("names", [("q",), ("k",), ("q", "k"), ("q", "k", "v")])
@EITHER_WAY
@EVERY_MECHANISM
def test_constant_inputs_are_no_trouble(mechanism, causal, names, value) -> None:
    case = random_case(35, seed=3, batch=2, padding="random", dtype=torch.float32)
    finite(mechanism, causal, replace(case, **{x: torch.full_like(case.q, value) for x in names}))


@pytest.mark.parametrize("scale", [1e-30, 1e-4, 1e2, 1e4])
@EITHER_WAY
@EVERY_MECHANISM
def test_any_scale_of_q_and_k_is_finite(mechanism, causal, scale) -> None:
    case = random_case(70, seed=4, padding="random", dtype=torch.float32)
    finite(mechanism, causal, replace(case, q=case.q * scale, k=case.k * scale))


def spikes(kind: str, length: int) -> torch.Tensor:
    """Keys [N] that outgrow or undercut each other by far more than float32's exponent holds."""
    time = torch.arange(length, dtype=torch.float64)
    return {
        "rising": 1e4 * time / length,
        "falling": -1e4 * time / length,
        "alternating": 1e4 * (-1) ** time,
        "one early": torch.where(time == 3, 1e4, 0.0),
        "one late": torch.where(time == length - 3, 1e4, 0.0),
        "one pit": torch.where(time == length // 2, -1e4, 0.0),
        "steps": 1e4 * (time // 16),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["rising", "falling", "alternating", "one early", "one late", "one pit", "steps"]
)
@EITHER_WAY
@EVERY_MECHANISM
def test_spikes_in_the_keys_follow_the_oracle(mechanism, causal, kind) -> None:
    """No event may push another out of float32's range, neither earlier nor later ones."""
    case = random_case(70, seed=5, batch=1, padding="random")
    sign = torch.tensor([1.0, -1.0]).repeat(4)  # both directions at once, in different features
    case = replace(case, k=(case.k + spikes(kind, 70)[:, None] * sign).float().double())
    finite(mechanism, causal, case.to(torch.float32))
    if mechanism == "softmax":  # scores of 1e4 and more: float32 cannot order close ones
        return
    assert_same_values_and_grads(
        lambda x: attend(mechanism, x, causal),
        lambda x: oracle(mechanism, x, causal),
        case,
        (torch.float64, torch.float32),
    )


@pytest.mark.parametrize("padding", ["all", "end", "random"])
@pytest.mark.parametrize("length", [1, 37, 130])
def test_one_peak_for_all_is_as_good_as_the_largest_so_far(length, padding) -> None:
    case = random_case(length, seed=6, padding=padding, dtype=torch.float32)
    # as far apart as one peak is used for
    case = replace(case, k=case.k * 0.95 * efficient.NARROW / (case.k.max() - case.k.min()))

    def running(x: Case) -> torch.Tensor:
        with patch.object(efficient, "NARROW", -1.0):
            return attend("efficient", x, causal=True)

    assert_same_values_and_grads(lambda x: attend("efficient", x, causal=True), running, case)
