"""What is refused, in one sentence with a remedy, and what is accepted in which precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from linrec import ops
from linrec.types import InputError
from tests.ops.cases import LINEAR, attend, random_case, resume, start

CASE = random_case(5, batch=2, heads=2, width=4, dtype=torch.float32)
Q, K, V = CASE.q, CASE.k, CASE.v

REFUSED = {
    "unknown mechanism": (lambda: ops.attend("flash", Q, K, V), "linrec-decay"),
    "unknown mechanism to start": (lambda: ops.start("flash", 1, 1, 4), "linrec-decay"),
    "no state": (lambda: ops.start("softmax", 1, 1, 4), "linear mechanism"),
    "q without heads": (lambda: ops.attend("linrec", Q[0], K[0], V[0]), "batch, heads, length"),
    "k of another length": (
        lambda: ops.attend("linrec", Q, K[:, :, :3], V),
        "batch, heads, length",
    ),
    "v of another length": (
        lambda: ops.attend("linrec", Q, K, V[:, :, :3]),
        "batch, heads, length",
    ),
    "keep as numbers": (
        lambda: ops.attend("linrec", Q, K, V, keep=torch.ones(2, 5)),
        "bool tensor",
    ),
    "keep transposed": (
        lambda: ops.attend("linrec", Q, K, V, keep=torch.ones(5, 2, dtype=torch.bool)),
        r"\(2, 5\)",
    ),
    "decay where none is taken": (
        lambda: ops.attend("linrec", Q, K, V, decay=torch.zeros(2)),
        "linrec-decay does",
    ),
    "decay of other heads": (
        lambda: ops.attend("linrec-decay", Q, K, V, decay=torch.zeros(3)),
        "each of the 2 heads",
    ),
    "growing": (
        lambda: ops.attend("linrec-decay", Q, K, V, decay=torch.tensor([-1.0, 0.1])),
        "log g",
    ),
    "many events in one step": (
        lambda: ops.step("linrec", Q, K, V, ops.start("linrec", 2, 2, 4)),
        "resume takes many",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_is_refused_in_one_sentence(what: str) -> None:
    call, remedy = REFUSED[what]
    with pytest.raises(InputError, match=remedy) as refusal:
        call()
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 250


def test_who_has_a_state_and_who_forgets() -> None:
    assert [name for name in ops.MECHANISMS if not ops.has_state(name)] == ["softmax"]
    assert [name for name in ops.MECHANISMS if ops.takes_decay(name)] == ["linrec-decay"]


@pytest.mark.parametrize("mechanism", LINEAR)
def test_start_takes_a_precision_and_a_device(mechanism: str) -> None:
    state = ops.start(mechanism, 2, 3, 4, dtype=torch.float64, device="cpu")
    assert state.memory.shape == (2, 3, 4, 4)
    assert state.column.shape == (2, 3, 4)
    assert state.count.shape == (2, 3)
    assert {state.memory.dtype, state.column.dtype, state.count.dtype} == {torch.float64}
    assert state.memory.device.type == "cpu"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mechanism", list(ops.MECHANISMS))
def test_outputs_have_the_precision_of_the_values(mechanism, dtype) -> None:
    case = CASE.to(dtype)
    for causal in (False, True):
        assert attend(mechanism, case, causal).dtype == dtype
    if ops.has_state(mechanism):
        out, state = resume(mechanism, case, start(mechanism, CASE))
        assert out.dtype == dtype
        assert state.memory.dtype == torch.float32


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mechanism", LINEAR)
def test_autocast_does_not_narrow_the_sums(mechanism, causal) -> None:
    case = random_case(70, padding="random", dtype=torch.float32)
    expected = attend(mechanism, case, causal)
    with torch.autocast("cpu", torch.bfloat16):
        actual = attend(mechanism, case, causal)
        resumed, _ = resume(mechanism, case, start(mechanism, case))
    assert actual.dtype == torch.float32
    assert torch.equal(actual, expected)
    if causal:
        torch.testing.assert_close(resumed, expected)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_softmax_of_bfloat16_is_taken_in_float32_on_the_cpu(causal, autocast) -> None:
    """torch's bfloat16 kernel rounds on the way; only the result is rounded here."""
    narrow = random_case(70, padding="random", dtype=torch.float32).to(torch.bfloat16)
    expected = attend("softmax", narrow.to(torch.float32), causal).bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        assert torch.equal(attend("softmax", narrow, causal), expected)


@pytest.mark.parametrize("mechanism", LINEAR)
def test_a_long_history_in_bfloat16_is_summed_in_float32(mechanism) -> None:
    """In bfloat16 a running sum of ones stops at 256; the last event must still count."""
    ones = torch.ones(1, 1, 2000, 4, dtype=torch.bfloat16)
    values = torch.arange(2000.0)[None, None, :, None].expand_as(ones).bfloat16()
    case = replace(CASE, q=ones, k=ones, v=values, keep=None, decay=torch.tensor([-1e-3]))
    actual = attend(mechanism, case, True)[0, 0, -1].float()
    expected = attend(mechanism, case.to(torch.float64), True)[0, 0, -1].float()
    torch.testing.assert_close(actual, expected, rtol=2**-8, atol=0)
