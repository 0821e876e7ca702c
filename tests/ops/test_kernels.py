"""The compiled kernels give what the torch form gives, values and gradients, on every input."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from itertools import product
from threading import Barrier, Thread

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from linrec import ops
from linrec.ops import fused
from linrec.ops.rule import FeatureMap, Normaliser, Rule
from linrec.ops.rule_based import RuleBased
from linrec.types import InputError
from tests.ops.cases import (
    Case,
    Padding,
    assert_same_values_and_grads,
    attend,
    oracle,
    random_case,
    values_and_grads,
)

pytestmark = pytest.mark.skipif(
    ops.kernels().startswith("off"), reason=f"kernels are {ops.kernels()}"
)

COVERED = [name for name in ops.MECHANISMS if not ops.kernels(name).startswith("off")]
PRECISIONS = (torch.float32, torch.bfloat16)
PADDINGS: list[Padding] = ["none", "end", "start", "random", "all"]


def twin(mechanism: str, case: Case, causal: bool) -> Tensor:
    with ops.without_kernels():
        return attend(mechanism, case, causal)


def assert_equals_twin(mechanism: str, case: Case, causal: bool) -> None:
    rule = ops.find(mechanism).rule
    assert fused.covers(rule, *(x.float() for x in (case.q, case.k, case.v)))
    assert_same_values_and_grads(
        lambda c: attend(mechanism, c, causal),
        lambda c: twin(mechanism, c, causal),
        case,
        PRECISIONS,
    )


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mechanism", COVERED)
@pytest.mark.parametrize("length", [1, 7, 8, 9, 63, 200])
def test_any_length(mechanism: str, causal: bool, length: int) -> None:
    assert_equals_twin(mechanism, random_case(length, width=16, padding="end"), causal)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mechanism", COVERED)
@pytest.mark.parametrize("width", [1, 5, 8, 12, 16, 20, 32, 33, 64, 100, 128])
def test_any_width(mechanism: str, causal: bool, width: int) -> None:
    case = random_case(21, width=width, batch=1, padding="random")
    assert_equals_twin(mechanism, case, causal)


@settings(max_examples=60)
@given(
    mechanism=st.sampled_from(COVERED),
    causal=st.booleans(),
    length=st.integers(1, 50),
    width=st.integers(2, 40),
    batch=st.integers(1, 3),
    padding=st.sampled_from(PADDINGS),
    seed=st.integers(0, 99),
)
def test_any_case(
    mechanism: str,
    causal: bool,
    length: int,
    width: int,
    batch: int,
    padding: Padding,
    seed: int,
) -> None:
    case = random_case(length, seed, batch=batch, width=width, padding=padding)
    assert_equals_twin(mechanism, case, causal)


@pytest.mark.parametrize("mechanism", COVERED)
@pytest.mark.parametrize("causal", [True, False])
def test_equals_the_oracle_too(mechanism: str, causal: bool) -> None:
    assert_same_values_and_grads(
        lambda c: attend(mechanism, c, causal),
        lambda c: oracle(mechanism, c, causal),
        random_case(40, width=16, padding="random"),
        PRECISIONS,
    )


def test_long_histories_with_a_short_memory() -> None:
    assert_equals_twin("linrec-decay", random_case(3000, batch=1, width=8), True)


@pytest.mark.parametrize("causal", [True, False])
def test_small_numbers_keep_their_precision(causal: bool) -> None:
    """elu(x) = x for small x: exp(x) - 1 must not cancel."""
    case = random_case(30, width=16).map(lambda x: x * 2.0**-10)
    assert_equals_twin("linrec", case, causal)


def test_nan_is_not_hidden() -> None:
    case = random_case(9, width=8, dtype=torch.float32)
    case.k[0, 0, 3, 2] = float("nan")
    out = attend("linrec", case, True)
    assert out[0, 0, 3:].isnan().any(-1).all()
    assert not out[0, 1:].isnan().any()
    assert not out[1:].isnan().any()


def fused_projection(batch: int = 2, length: int = 19, heads: int = 3, width: int = 16) -> Tensor:
    rng = torch.Generator().manual_seed(3)
    return torch.randn(batch, length, 3, heads, width, generator=rng)


def test_views_of_a_fused_projection_are_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(x: Tensor) -> Tensor:
        raise AssertionError(f"a copy of {tuple(x.shape)} was made")

    q, k, v = fused_projection().permute(2, 0, 3, 1, 4)
    expected = ops.attend("linrec", *(x.contiguous() for x in (q, k, v)), causal=True)
    monkeypatch.setattr(Tensor, "contiguous", copied)
    out = ops.attend("linrec", q, k, v, causal=True)
    assert torch.equal(out, expected)
    merged = out.transpose(1, 2).flatten(-2)
    assert merged.data_ptr() == out.data_ptr()  # a view, not a copy


def test_any_strides() -> None:
    q, k, v = fused_projection().permute(2, 0, 3, 1, 4)
    expected = ops.attend("linrec", q, k, v)
    turned = [x.mT.contiguous().mT for x in (q, k, v)]  # the width is not contiguous
    assert torch.equal(ops.attend("linrec", *turned), expected)
    one = q[:1, :1].expand(2, 3, -1, -1)
    plain = ops.attend("linrec", one.contiguous(), k, v)
    assert torch.equal(ops.attend("linrec", one, k, v), plain)


@pytest.mark.parametrize("causal", [True, False])
def test_threads_change_nothing(causal: bool) -> None:
    case = random_case(300, batch=4, heads=4, width=32, dtype=torch.float32, padding="end")
    actual = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            actual.append(values_and_grads(lambda c: attend("linrec-decay", c, causal), case))
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(actual[0][name], actual[1][name]) for name in actual[0])


def test_second_derivatives_come_from_the_torch_form() -> None:
    case = random_case(6, width=8, dtype=torch.float32)
    actual = []
    for form in (attend, twin):
        q = case.q.clone().requires_grad_()
        out = form("linrec", Case(q, case.k, case.v, None, case.decay), True)
        (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        actual.append(torch.autograd.grad(first.square().sum(), q)[0])
    torch.testing.assert_close(*actual, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("decayed", [True, False])
def test_is_a_well_behaved_operator(decayed: bool) -> None:
    case = random_case(9, width=8, dtype=torch.float32, padding="end")
    q, k, v = (x.requires_grad_() for x in (case.q, case.k, case.v))
    decay = case.decay.requires_grad_() if decayed else None
    rule = [int(field) for field in ops.find("linrec-decay").rule]
    projected = (
        torch.stack([q, k, v], 2).transpose(1, 3).detach().requires_grad_()
    )  # [B, N, 3, H, D]
    for parts in ([q, k, v], [projected.requires_grad_()]):
        torch.library.opcheck(fused._attend, (parts, case.keep, decay, rule, True))


def test_a_projection_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match="projected must be"):
        ops.attend_projected("linrec", torch.zeros(2, 5, 2, 4, 8))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mechanism", COVERED)
def test_a_projection_is_taken_whole(mechanism: str, causal: bool) -> None:
    torch.manual_seed(0)
    projected = torch.randn(3, 21, 3, 2, 16, requires_grad=True)
    keep = torch.arange(21) >= torch.tensor([[0], [4], [20]])
    decay = torch.tensor([-0.2, -0.01]) if ops.takes_decay(mechanism) else None
    dout = torch.randn(3, 2, 21, 16)
    options = {"keep": keep, "causal": causal, "decay": decay}
    out = ops.attend_projected(mechanism, projected, **options)
    (gradient,) = torch.autograd.grad(out, projected, dout)
    q, k, v = projected.permute(2, 0, 3, 1, 4)
    with ops.without_kernels():
        expected = ops.attend(mechanism, q, k, v, **options)
        (expected_gradient,) = torch.autograd.grad(expected, projected, dout)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_compiles_into_one_graph() -> None:
    case = random_case(9, width=8, dtype=torch.float32, padding="end")
    compiled = torch.compile(
        lambda c: attend("linrec-decay", c, True).square(), fullgraph=True, backend="aot_eager"
    )
    actual = values_and_grads(compiled, case)
    expected = values_and_grads(lambda c: attend("linrec-decay", c, True).square(), case)
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value)


@pytest.mark.slow
def test_compiled_without_kernels_there_are_none() -> None:
    q, k, v = fused_projection().permute(2, 0, 3, 1, 4)
    operators = []

    def keep_graph(module: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        operators.extend(str(node.target) for node in module.graph.nodes)
        return module

    with ops.without_kernels():
        attended = torch.compile(
            lambda *x: ops.attend("linrec", *x, causal=True), fullgraph=True, backend=keep_graph
        )(q, k, v)
    assert not any("linrec" in name for name in operators)
    torch.testing.assert_close(attended, ops.attend("linrec", q, k, v, causal=True))


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_autocast_changes_nothing(dtype: torch.dtype) -> None:
    """Neither the inputs nor the sums are rounded: the precision is the caller's."""
    case = random_case(9, width=8, dtype=dtype)
    for form in (attend, twin):
        expected = form("linrec", case, True)
        with torch.autocast("cpu", torch.bfloat16):
            actual = form("linrec", case, True)
        assert actual.dtype == dtype
        assert torch.equal(actual, expected)


def test_says_what_runs() -> None:
    assert ops.kernels() in ("portable", "avx2", "avx512")
    assert ops.kernels("linrec-decay") == ops.kernels()
    assert ops.kernels("softmax").startswith("off: ")
    with ops.without_kernels():
        assert ops.kernels().startswith("off: ")
    assert not fused.covers(
        ops.find("linrec").rule, *[torch.zeros(1, 1, 1, 8, dtype=torch.float64)] * 3
    )


RULES = [
    Rule(feature_map, normaliser, *flags)
    for feature_map, normaliser in product(FeatureMap, Normaliser)
    for flags in product([False, True], repeat=3)
    # rows of features of any sign may sum to nearly nothing, where no two forms agree
    if normaliser != Normaliser.ROW_SUM or feature_map == FeatureMap.ELU_PLUS_ONE
]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_rule_that_can_be_declared(rule: Rule, causal: bool) -> None:
    case = random_case(21, width=12, batch=2, padding="random")
    rules = [rule]
    if rule.normaliser == Normaliser.COLUMN_NORM:
        rules.append(rule._replace(decay=True))
    for each in rules:
        assert_same_values_and_grads(
            lambda c, rule=each: fused.attend(
                rule, [c.q, c.k, c.v], c.keep, causal, c.decay if rule.decay else None
            ),
            lambda c, rule=each: RuleBased(rule).attend(
                c.q, c.k, c.v, c.keep, causal, c.decay if rule.decay else None
            ),
            case,
            PRECISIONS,
        )


def test_a_decay_without_column_norms_takes_the_torch_form() -> None:
    rule = ops.find("linear-transformer").rule._replace(decay=True)
    assert not fused.has_kernel(rule)
    case = random_case(5, width=8, dtype=torch.float32)
    with pytest.raises(ValueError, match="column norms"):
        fused.attend(rule, [case.q, case.k, case.v], None, True, case.decay)


def test_a_rule_that_no_kernel_knows_is_refused() -> None:
    case = random_case(5, width=8, dtype=torch.float32)
    with pytest.raises(ValueError, match="unknown feature map"):
        fused._attend([case.q, case.k, case.v], None, None, [7, 0, 0, 0, 0, 0], True)


def test_the_switch_belongs_to_one_thread() -> None:
    """One thread compares the two forms while another continues with the kernels."""
    q, k, v = fused_projection().permute(2, 0, 3, 1, 4)
    off, seen = Barrier(2), {}

    def kernel_calls() -> int:
        with torch.profiler.profile() as profile:
            ops.attend("linrec", q, k, v, causal=True)
        return sum(event.name == "linrec::attend" for event in profile.events())

    def compare() -> None:
        with ops.without_kernels():
            off.wait()  # the other thread looks while this one has them off
            seen["off"] = ops.kernels()
            off.wait()
        seen["on again"] = ops.kernels()

    thread = Thread(target=compare)
    thread.start()
    off.wait()
    seen["other thread"] = ops.kernels()
    calls = kernel_calls()
    off.wait()
    thread.join()
    assert calls == 1
    assert seen["off"].startswith("off: ")
    assert seen["other thread"] == seen["on again"] == ops.kernels()
    assert not ops.kernels().startswith("off")


def test_second_derivatives_leave_the_switch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The torch form of a double backward is called as such, whatever the switch says."""

    def refused() -> None:
        raise AssertionError("the kernels were switched within autograd")

    monkeypatch.setattr(fused, "without_kernels", refused)
    q = fused_projection().permute(2, 0, 3, 1, 4)[0].requires_grad_()
    out = ops.attend("linrec", q, q, q, causal=True)
    (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    assert torch.autograd.grad(first.square().sum(), q)[0].isfinite().all()


def run(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_can_be_switched_off() -> None:
    code = "from linrec import ops; print(ops.kernels())"
    assert run(code, LINREC_KERNELS="off") == "off: LINREC_KERNELS=off"


@pytest.mark.slow
@pytest.mark.parametrize("instructions", ["portable", "avx2", "avx512"])
def test_every_instruction_set_gives_the_same(instructions: str) -> None:
    code = """
        import torch
        from linrec import ops
        print(ops.kernels())
        for name in ops.MECHANISMS:
            if ops.kernels(name).startswith("off"):
                continue
            for causal in (True, False):
                for width in (8, 16, 20, 64):
                    torch.manual_seed(width)
                    inputs = [torch.randn(2, 2, 37, width, requires_grad=True) for _ in range(3)]
                    decay = None
                    if name == "linrec-decay":
                        decay = torch.tensor([-0.1, -0.4], requires_grad=True)
                    wanted = [*inputs, *([] if decay is None else [decay])]
                    def found():
                        out = ops.attend(name, *inputs, causal=causal, decay=decay)
                        return out, *torch.autograd.grad(out.square().sum(), wanted)
                    ours = found()
                    with ops.without_kernels():
                        twins = found()
                    for x, y in zip(ours, twins, strict=True):
                        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4)
    """
    ran = run(code, LINREC_INSTRUCTIONS=instructions)
    if ran != instructions:
        pytest.skip(f"this CPU has no {instructions}")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_does_not_wait_for_its_parents_threads() -> None:
    """Nothing of torch's is called beside it: its own operators would wait."""
    code = """
        import os, torch
        from linrec import ops
        torch.set_num_threads(3)
        x = torch.randn(4, 4, 300, 32)
        def attended():
            return ops.attend("linrec", x, x, x, causal=True).numpy().tobytes()
        out = attended()
        child = os.fork()
        if not child:
            os._exit(0 if attended() == out else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run(code, OMP_NUM_THREADS="3") == "0"


def test_denormal_numbers_survive_the_import() -> None:
    """Some compilers' fast maths switch them off for the whole process."""
    code = "import torch; from linrec import ops; print(torch.tensor(1e-40).mul(0.5).item() > 0)"
    assert run(code) == "True"
