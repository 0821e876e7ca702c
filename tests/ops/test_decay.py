"""linrec-decay: without forgetting it is linrec, with it each event weighs g^|t-m|."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from linrec import ops
from linrec.ops.accumulation import CHUNK, ChunkedSums, Decay
from linrec.ops.mechanism import EPSILON
from tests.ops.cases import (
    Case,
    Padding,
    assert_close,
    assert_same_values_and_grads,
    attend,
    oracle,
    random_case,
    values_and_grads,
)

EITHER_WAY = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
PADDINGS = pytest.mark.parametrize("padding", ["none", "end", "start", "random"])


def without_forgetting(case: Case) -> Case:
    return replace(case, decay=torch.zeros_like(case.decay))


@PADDINGS
@EITHER_WAY
def test_without_forgetting_it_is_linrec(causal, padding) -> None:
    case = without_forgetting(random_case(130, seed=1, padding=padding))
    actual = values_and_grads(lambda x: attend("linrec-decay", x, causal), case)
    expected = values_and_grads(lambda x: attend("linrec", x, causal), case)
    for name in ("out", "q", "k", "v"):
        assert_close(actual[name], expected[name])


@PADDINGS
@EITHER_WAY
def test_no_decay_given_is_no_forgetting(causal, padding) -> None:
    case = without_forgetting(random_case(130, seed=2, padding=padding))
    assert_close(
        attend("linrec-decay", case, causal, decay=None), attend("linrec-decay", case, causal)
    )


@EITHER_WAY
def test_one_number_serves_all_heads(causal) -> None:
    case = random_case(20, seed=3)
    one, each = torch.tensor(-0.3).double(), torch.full((2,), -0.3).double()
    assert_close(
        attend("linrec-decay", case, causal, decay=one),
        attend("linrec-decay", case, causal, decay=each),
    )


@EITHER_WAY
def test_a_very_short_memory_sees_the_event_itself(causal) -> None:
    case = random_case(130, seed=4, padding="random")
    blind = attend("linrec-decay", replace(case, decay=torch.full((2,), -1e4).double()), causal)
    alone = case.map(lambda x: x.transpose(1, 2).flatten(0, 1)[:, :, None])
    alone = replace(alone, keep=case.keep.flatten()[:, None])
    assert_close(
        blind, attend("linrec", alone, causal)[:, :, 0].unflatten(0, (3, 130)).transpose(1, 2)
    )


@EITHER_WAY
@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**31),
    length=st.integers(1, 140),
    spans=st.lists(st.floats(0.05, 1e5), min_size=2, max_size=2),
)
def test_it_weighs_by_distance(causal, seed, length, spans) -> None:
    """The matrix of weights written out, against the chunked sums."""
    case = replace(random_case(length, seed, batch=1), decay=-1 / torch.tensor(spans).double())
    time = torch.arange(length, dtype=torch.float64)
    weight = torch.exp(case.decay[:, None, None] * (time[:, None] - time).abs())
    if causal:
        weight = weight.tril()
    query, key = F.elu(case.q), F.elu(case.k)
    query = query / (8 * (query.square().sum(-1, keepdim=True) + EPSILON)).sqrt()
    norm = (weight @ key.square() * weight.sum(-1, keepdim=True) + EPSILON).sqrt()
    expected = (query / norm) @ key.mT * weight
    actual = ops.attention_matrix("linrec-decay", case.q, case.k, causal=causal, decay=case.decay)
    assert_close(actual, expected)


@EITHER_WAY
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_positions_and_counted_events_agree(causal, dtype) -> None:
    """Ages by position if no padding interferes, by counted events otherwise."""
    case = random_case(200, seed=5, dtype=dtype)
    garbage = random_case(200 + 37, seed=6, dtype=dtype)
    hole = torch.arange(237)
    hole = (hole < 20) | ((hole >= 100) & (hole < 117))

    def fill(x, y):
        y = y.clone()
        y[:, :, ~hole] = x
        return y

    holed = replace(
        case,
        q=fill(case.q, garbage.q),
        k=fill(case.k, garbage.k),
        v=fill(case.v, garbage.v),
        keep=(~hole).expand(3, -1),
    )
    uniform = values_and_grads(lambda x: attend("linrec-decay", x, causal), case)
    counted = values_and_grads(lambda x: attend("linrec-decay", x, causal)[:, :, ~hole], holed)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    assert_close(counted["out"], uniform["out"], tolerance)
    assert_close(counted["decay"], uniform["decay"], tolerance)
    for name in ("q", "k", "v"):
        assert_close(counted[name][:, :, ~hole], uniform[name], tolerance)


def test_the_state_fades() -> None:
    """By hand: one head, one feature, keys and values one, g = 1/2."""
    one = torch.ones(1, 1, 1, 1)
    half = torch.tensor([0.5]).log()
    state = ops.start("linrec-decay", 1, 1, 1)
    _, state = ops.step("linrec-decay", one, one, one, state, decay=half)
    out, state = ops.step("linrec-decay", one, one, 3 * one, state, decay=half)
    assert state.memory.item() == pytest.approx(3.5)
    assert state.column.item() == pytest.approx(1.5)
    assert state.count.item() == pytest.approx(1.5)
    assert out.item() == pytest.approx(3.5 / 1.5)


# ---------------------------------------------------------------------- both ways in one pass


def check_both_ways(case: Case) -> None:
    assert_same_values_and_grads(
        lambda x: attend("linrec-decay", x, False), lambda x: oracle("linrec-decay", x, False), case
    )


# up to one chunk the lengths of test_oracle serve; here two chunks are full, or three begin
@PADDINGS
@pytest.mark.parametrize(
    "length", [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 129, 130]
)
def test_both_ways_at_the_borders_of_chunks(length: int, padding: Padding) -> None:
    check_both_ways(random_case(length, seed=length, batch=1, width=3, padding=padding))


def test_both_ways_over_chunks_of_padding() -> None:
    """The memory crosses a whole chunk in which nothing happens, and fades by nothing."""
    case = random_case(200, seed=7, batch=2, width=3)
    time = torch.arange(200)
    keep = torch.stack([(time < 20) | (time >= 160), (time >= 70) & (time < 75)])
    check_both_ways(replace(case, keep=keep))


def test_bidirectional_sums_are_those_of_the_matrix() -> None:
    rate, length = -torch.tensor([0.5, 0.01]).double(), 130
    time = torch.arange(length, dtype=torch.float64)
    weight = torch.exp(rate[:, None, None] * (time[:, None] - time).abs())  # [H, N, N]
    case = random_case(length, seed=8, batch=2)
    sums = ChunkedSums(length, Decay(rate[:, None, None]), case.k)
    assert_close(sums.bidirectional_sum(case.k), weight @ case.k)
    actual = sums.bidirectional_attention(case.q, case.k, case.v)
    assert_close(actual, ((case.q @ case.k.mT) * weight) @ case.v)


def test_both_ways_is_the_past_and_the_future_with_itself_once() -> None:
    length = 130
    case = random_case(length, seed=9, batch=2)
    sums = ChunkedSums(length, Decay(case.decay[:, None, None]), case.k)
    before = sums.causal_sum(case.k)[0]
    after = sums.causal_sum(case.k.flip(2))[0].flip(2)
    assert_close(sums.bidirectional_sum(case.k), before + after - case.k)


def test_both_ways_turns_with_time() -> None:
    """Distance has no direction: read backwards, the same events say the same."""
    case = random_case(130, seed=10, padding="random")
    turned = replace(case.map(lambda x: x.flip(2)), keep=case.keep.flip(1))
    assert_close(attend("linrec-decay", turned, False).flip(2), attend("linrec-decay", case, False))
