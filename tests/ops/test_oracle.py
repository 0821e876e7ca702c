"""Every fast form gives what its formula, written out in float64, gives: values and gradients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from linrec import ops
from tests.ops.cases import (
    LENGTHS,
    Padding,
    assert_same_values_and_grads,
    attend,
    oracle,
    random_case,
    values_and_grads,
)

EVERY_FORM = pytest.mark.parametrize(
    ("mechanism", "causal"),
    [(name, causal) for name in ops.MECHANISMS for causal in (False, True)],
    ids=lambda x: x if isinstance(x, str) else ("causal" if x else "bidirectional"),
)


def check(mechanism: str, causal: bool, case) -> None:
    fast = partial(attend, mechanism, causal=causal)
    slow = partial(oracle, mechanism, causal=causal)
    assert_same_values_and_grads(lambda x: fast(case=x), lambda x: slow(case=x), case)


@pytest.mark.parametrize("length", LENGTHS)
@EVERY_FORM
def test_every_length(mechanism: str, causal: bool, length: int) -> None:
    small = {"batch": 1, "width": 4} if length == 1000 else {"batch": 2}
    check(mechanism, causal, random_case(length, seed=length, padding="random", **small))


# padding at the end takes another path where weights depend on distance, and in softmax
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mechanism", ["softmax", "linrec-decay"])
def test_every_length_padded_at_the_end(mechanism: str, causal: bool, length: int) -> None:
    small = {"batch": 1, "width": 4} if length == 1000 else {"batch": 2}
    check(mechanism, causal, random_case(length, seed=length, padding="end", **small))


@pytest.mark.parametrize("padding", ["none", "end", "start", "random", "all"])
@EVERY_FORM
def test_every_padding(mechanism: str, causal: bool, padding: Padding) -> None:
    check(mechanism, causal, random_case(67, seed=3, batch=2, padding=padding))
    check(mechanism, causal, random_case(9, seed=4, batch=1, padding=padding))


@pytest.mark.parametrize("width", [1, 8, 16, 64])
@EVERY_FORM
def test_every_head_width(mechanism: str, causal: bool, width: int) -> None:
    check(mechanism, causal, random_case(35, seed=width, batch=1, width=width, padding="random"))


@EVERY_FORM
def test_values_may_have_another_width(mechanism: str, causal: bool) -> None:
    case = random_case(33, seed=5, batch=2, padding="random")
    check(mechanism, causal, replace(case, v=case.v[..., :3]))


@EVERY_FORM
def test_strides_do_not_matter(mechanism: str, causal: bool) -> None:
    """q, k and v as they come out of one fused projection: views of one tensor, none contiguous."""
    case = random_case(65, seed=6, padding="random", dtype=torch.float32)
    fused = torch.stack([case.q, case.k, case.v]).permute(1, 3, 0, 2, 4).contiguous()
    q, k, v = fused.permute(2, 0, 3, 1, 4)
    assert not q.is_contiguous()
    torch.testing.assert_close(
        attend(mechanism, replace(case, q=q, k=k, v=v), causal), attend(mechanism, case, causal)
    )


@pytest.mark.parametrize("padding", ["none", "end", "random"])
@EVERY_FORM
def test_gradients_are_those_of_finite_differences(
    mechanism: str, causal: bool, padding: Padding, monkeypatch: pytest.MonkeyPatch
) -> None:
    # chunks of two or three, so that a short sequence crosses several borders
    monkeypatch.setattr("linrec.ops.accumulation.CHUNK", 3)
    monkeypatch.setattr("linrec.ops.accumulation.CHUNK_BY_FEATURE", 2)
    case = random_case(7, seed=8, batch=1, heads=2, width=2, padding=padding)
    leaves = [x.clone().requires_grad_() for x in (case.q, case.k, case.v, case.decay)]

    def form(q, k, v, decay):
        return attend(mechanism, replace(case, q=q, k=k, v=v, decay=decay), causal)

    with_decay = ops.takes_decay(mechanism)
    inputs = leaves if with_decay else [*leaves[:3], case.decay]
    assert torch.autograd.gradcheck(form, inputs, eps=1e-6, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_gradient_of_the_decay_at_its_edge(causal: bool) -> None:
    """At g = 1 the gradient is still that of the formula, not of a clamp."""
    case = replace(random_case(40, seed=9, padding="random"), decay=torch.zeros(2).double())
    actual = values_and_grads(lambda x: attend("linrec-decay", x, causal), case)
    expected = values_and_grads(lambda x: oracle("linrec-decay", x, causal), case)
    assert expected["decay"].abs().min() > 1e-3
    torch.testing.assert_close(actual["decay"], expected["decay"])
