"""Values and gradients of the Triton kernels against the float64 oracle."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch._dynamo.backends.debugging import aot_eager

from linrec import ops
from linrec.ops import fused, resuming, triton
from tests.ops import cases
from tests.ops.cases import random_case
from tests.ops.interpreted.cases import (
    COVERED,
    DEVICE,
    assert_equals_oracle,
    on_device,
    there,
)

# float16 rounds outputs and gradients to eleven bits
cases.TOLERANCE.setdefault(torch.float16, 2e-3)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mechanism", ["linrec", "linrec-decay"])
@pytest.mark.parametrize("length", [1, 15, 17, 33])
def test_any_length(mechanism: str, causal: bool, length: int) -> None:
    case = random_case(length, width=16, batch=1, heads=2, padding="end")
    assert_equals_oracle(mechanism, case, causal)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mechanism", COVERED)
def test_every_mechanism(mechanism: str, causal: bool) -> None:
    case = random_case(35, width=8, batch=2, heads=1, padding="random")
    assert_equals_oracle(mechanism, case, causal)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_narrow_inputs(causal: bool, dtype: torch.dtype) -> None:
    case = random_case(40, width=16, batch=1, heads=2, padding="random")
    assert_equals_oracle("linrec-decay", case, causal, dtype)


@pytest.mark.parametrize("width", [1, 20, 32])
def test_any_width(width: int) -> None:
    assert_equals_oracle("linrec-decay", random_case(18, width=width, batch=1, heads=1), True)


@pytest.mark.parametrize("width", [64, 128])
def test_wide_heads(width: int) -> None:
    """Gradients of keys and of values come from two passes there."""
    case = random_case(17, width=width, batch=1, heads=1)
    assert_equals_oracle("linrec-decay", case, True, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("width", [64, 100, 128])
def test_wide_heads_without_gradients(width: int, causal: bool, dtype: torch.dtype) -> None:
    """The forward pass takes all of them; the gradients of some come from the torch form."""
    case = random_case(18, width=width, batch=1, heads=1, padding="end")
    narrow = there(case.to(dtype))
    assert fused.covers(ops.find("linrec-decay").rule, narrow.q, narrow.k, narrow.v)
    actual = on_device("linrec-decay", case.to(dtype), causal).double()
    expected = cases.oracle("linrec-decay", case, causal)
    error = (actual - expected).abs().max()
    assert error <= cases.TOLERANCE[dtype] * expected.abs().max()


@pytest.mark.parametrize("padding", ["start", "all"])
@pytest.mark.parametrize("causal", [True, False])
def test_padding(padding: cases.Padding, causal: bool) -> None:
    case = random_case(20, width=8, batch=2, heads=1, padding=padding)
    assert_equals_oracle("linrec-decay", case, causal)


def test_many_segments() -> None:
    """A state is handed on from segment to segment, as with a sequence and a large device."""
    case = random_case(140, width=8, batch=1, heads=2, padding="random")
    assert_equals_oracle("linrec-decay", case, True)


@pytest.mark.parametrize("causal", [True, False])
def test_small_numbers_keep_their_precision(causal: bool) -> None:
    case = random_case(20, width=16, batch=1, heads=1).map(lambda x: x * 2.0**-10)
    assert_equals_oracle("linrec", case, causal)


def test_nan_is_not_hidden() -> None:
    case = random_case(9, width=8, dtype=torch.float32)
    case.k[0, 0, 3, 2] = float("nan")
    out = on_device("linrec", case, True)
    assert out[0, 0, 3:].isnan().any(-1).all()
    assert not out[0, 1:].isnan().any()
    assert not out[1:].isnan().any()


@pytest.mark.parametrize("causal", [True, False])
def test_a_projection_is_taken_whole(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    projected = torch.randn(2, 21, 3, 2, 16, device=DEVICE, requires_grad=True)
    keep = (torch.arange(21) >= torch.tensor([[4], [0]])).to(DEVICE)
    options = {"keep": keep, "causal": causal, "decay": torch.tensor([-0.2, -0.01], device=DEVICE)}
    dout = torch.randn(2, 2, 21, 16, device=DEVICE)
    q, k, v = projected.permute(2, 0, 3, 1, 4)
    with ops.without_kernels():
        expected = ops.attend("linrec-decay", q, k, v, **options)
        (expected_gradient,) = torch.autograd.grad(expected, projected, dout)

    def copied(x: torch.Tensor) -> torch.Tensor:
        raise AssertionError(f"a copy of {tuple(x.shape)} was made")

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "clone", copied)
        out = ops.attend_projected("linrec-decay", projected, **options)
    (gradient,) = torch.autograd.grad(out, projected, dout)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=1e-4)
    merged = out.transpose(1, 2).flatten(-2)
    assert merged.data_ptr() == out.data_ptr()  # a view, not a copy


def test_any_strides() -> None:
    case = there(random_case(19, width=16, batch=2, heads=1, dtype=torch.float32))
    expected = ops.attend("linrec", case.q, case.k, case.v)
    turned = [x.mT.contiguous().mT for x in (case.q, case.k, case.v)]
    torch.testing.assert_close(ops.attend("linrec", *turned), expected)


STRIDED = {
    "features first": lambda x: x.mT.contiguous().mT,
    "every other position": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
    "part of a wider row": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("layout", STRIDED)
def test_gradients_of_strided_inputs(layout: str, causal: bool) -> None:
    """The gradient of the output arrives transposed, too."""
    change = STRIDED[layout]
    case = random_case(19, width=8, batch=2, heads=1, padding="random")
    assert not change(case.q).is_contiguous()
    cases.assert_same_values_and_grads(
        lambda c: on_device("linrec-decay", c.map(change), causal).mT,
        lambda c: cases.oracle("linrec-decay", c, causal).mT,
        case,
        (torch.float32,),
    )


@pytest.mark.parametrize("mechanism", ["linrec-decay", "linrec-without-norm"])
def test_a_cut_sequence_resumes_where_it_was(mechanism: str) -> None:
    """Outputs, state and all gradients, those of the initial state too, as by the torch form."""
    case = there(random_case(30, width=8, batch=2, heads=2, padding="random", dtype=torch.float32))
    first, rest = case.at(slice(0, 13)), case.at(slice(13, None))
    found = []
    for kernels in (True, False):
        leaves = [x.detach().clone().requires_grad_() for x in (rest.q, rest.k, rest.v)]
        decay = case.decay.clone().requires_grad_()
        options = {"decay": decay} if ops.takes_decay(mechanism) else {}
        state = ops.start(mechanism, 2, 2, 8, device=DEVICE)
        _, state = ops.resume(mechanism, first.q, first.k, first.v, state, keep=first.keep)
        parts = [x.detach().requires_grad_() for x in (state.memory, state.column, state.count)]
        begun = ops.State(*parts)
        rule = ops.find(mechanism).rule
        assert resuming.covers(rule, *(x.detach() for x in leaves), begun)
        if kernels:
            out, after = ops.resume(mechanism, *leaves, begun, keep=rest.keep, **options)
        else:
            with ops.without_kernels():
                out, after = ops.resume(mechanism, *leaves, begun, keep=rest.keep, **options)
        outs = [out, after.memory, after.column, after.count]
        loss = sum(
            (x * torch.linspace(0.5, 1.5, x.numel()).view(x.shape).to(x)).sum() for x in outs
        )
        wanted = [*leaves, *parts, decay]
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
        found.append([*(x.detach() for x in outs), *gradients])
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=2e-3, atol=2e-4)


def test_second_derivatives_come_from_the_torch_form() -> None:
    case = there(random_case(6, width=8, batch=1, heads=1, dtype=torch.float32))
    found = []
    for kernels in (True, False):
        q = case.q.clone().requires_grad_()
        if kernels:
            out = ops.attend("linrec", q, case.k, case.v, causal=True)
        else:
            with ops.without_kernels():
                out = ops.attend("linrec", q, case.k, case.v, causal=True)
        (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), q)[0])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


def test_says_what_runs() -> None:
    assert ops.kernels(device=DEVICE).startswith("triton 3.")
    assert ops.kernels("efficient", device=DEVICE).startswith("off: there is none")
    with ops.without_kernels():
        assert ops.kernels(device=DEVICE) == "off: LINREC_KERNELS=off"
    rule = ops.find("linrec").rule
    for dtype, widest in triton.MAX_WIDTH_OF_GRADIENTS.items():
        for width in (16, 32, 64, 128):
            x = torch.zeros(1, 1, 1, width, device=DEVICE, dtype=dtype, requires_grad=True)
            assert fused.covers(rule, x, x, x) == (width <= widest)
            with torch.no_grad():
                assert fused.covers(rule, x, x, x)
    assert not fused.covers(rule, *[torch.zeros(1, 1, 1, 8, dtype=torch.float64)] * 3)


def test_compiles_into_one_graph() -> None:
    """Torch's compiler sees one operator, and neither looks into Triton nor breaks the graph."""
    case = there(random_case(9, width=8, batch=1, heads=1, dtype=torch.float32, padding="end"))
    operators: list[str] = []

    def keep_graph(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        operators.extend(str(node.target) for node in module.graph.nodes)
        return aot_eager(module, inputs)

    def attended(c: cases.Case) -> torch.Tensor:
        return cases.attend("linrec-decay", c, True).square()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = torch.compile(attended, fullgraph=True, backend=keep_graph)
        actual = cases.values_and_grads(compiled, case)
    assert "linrec.attend.default" in operators
    for name, value in cases.values_and_grads(attended, case).items():
        torch.testing.assert_close(actual[name], value)


def test_resuming_compiles_into_one_graph() -> None:
    case = there(random_case(9, width=8, batch=1, heads=1, dtype=torch.float32))
    state = ops.start("linrec-decay", 1, 1, 8, device=DEVICE)

    def resumed(q: torch.Tensor) -> torch.Tensor:
        out, after = ops.resume("linrec-decay", q, case.k, case.v, state, decay=case.decay)
        return out.sum() + after.memory.square().sum()

    found = []
    for form in (torch.compile(resumed, fullgraph=True, backend="aot_eager"), resumed):
        q = case.q.clone().requires_grad_()
        loss = form(q)
        found.append((loss.detach(), *torch.autograd.grad(loss, q)))
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected)
