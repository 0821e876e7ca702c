"""What must hold of every mechanism whatever the inputs: padding, batches, time and state."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from linrec import ops
from tests.ops.cases import (
    LINEAR,
    Case,
    assert_close,
    attend,
    decay_of,
    random_case,
    resume,
    start,
)

EVERY_MECHANISM = pytest.mark.parametrize("mechanism", list(ops.MECHANISMS))
EVERY_LINEAR = pytest.mark.parametrize("mechanism", LINEAR)
EITHER_WAY = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])

SEEDS = st.integers(0, 2**31)
FEW = settings(max_examples=12)


def in_holes(case: Case, holes: Tensor) -> tuple[Case, Tensor]:
    """The case with padded garbage before its events: `holes` [N + 1], how many before each.

    Also where the events are now.
    """
    length = case.length + int(holes.sum())
    positions = torch.arange(case.length) + holes[:-1].cumsum(0)

    def spread(x: Tensor) -> Tensor:
        wide = 100 * torch.randn(*x.shape[:2], length, x.shape[3], dtype=x.dtype)
        wide[:, :, positions] = x
        return wide

    keep = torch.zeros(case.q.shape[0], length, dtype=torch.bool)
    keep[:, positions] = case.kept
    return replace(case.map(spread), keep=keep), positions


@EITHER_WAY
@EVERY_MECHANISM
@FEW
@given(
    seed=SEEDS,
    length=st.integers(1, 70),
    where=st.sampled_from(["before", "after", "anywhere"]),
    count=st.integers(1, 70),
)
def test_padding_changes_nothing(mechanism, causal, seed, length, where, count) -> None:
    case = random_case(length, seed, batch=2)
    holes = torch.zeros(length + 1, dtype=torch.long)
    if where == "anywhere":
        holes += torch.randint(0, 3, holes.shape, generator=torch.Generator().manual_seed(seed))
    else:
        holes[0 if where == "before" else -1] = count
    padded, positions = in_holes(case, holes)
    out = attend(mechanism, padded, causal)
    assert_close(out[:, :, positions], attend(mechanism, case, causal))
    assert (out[~padded.keep[:, None].expand(out.shape[:3])] == 0).all()


@EITHER_WAY
@EVERY_MECHANISM
def test_a_sequence_does_not_see_its_batch_mates(mechanism: str, causal: bool) -> None:
    case = random_case(70, seed=1, batch=5, padding="random")
    together = attend(mechanism, case, causal)
    order = torch.randperm(5)
    assert_close(attend(mechanism, case.rows(order), causal), together[order])
    for row in range(5):
        one = case.rows(slice(row, row + 1))
        kept = one.keep[0]
        assert_close(attend(mechanism, one, causal), together[row : row + 1])
        # nor does it see how far it is padded
        alone = replace(one.at(kept), keep=None)
        assert_close(attend(mechanism, alone, causal), together[row : row + 1, :, kept])


@EVERY_MECHANISM
@FEW
@given(seed=SEEDS, length=st.integers(2, 140), share=st.floats(0, 1))
def test_the_future_changes_nothing(mechanism, seed, length, share) -> None:
    now = min(int(share * length), length - 1)
    case = random_case(length, seed, batch=2, padding="random")
    other = random_case(length, seed + 1, batch=2, padding="random")
    past = torch.arange(length) <= now

    def swap(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(past[:, None], x, 50 * y)

    changed = replace(
        case,
        q=swap(case.q, other.q),
        k=swap(case.k, other.k),
        v=swap(case.v, other.v),
        keep=torch.where(past, case.keep, other.keep),
    )
    before, after = (attend(mechanism, x, True)[:, :, : now + 1] for x in (case, changed))
    assert_close(after, before, 1e-12)


@EVERY_MECHANISM
@pytest.mark.parametrize("padding", ["none", "end", "random"])
def test_causal_is_bidirectional_on_each_prefix(mechanism: str, padding) -> None:
    """What the last event sees: linrec-decay weighs g^(t-m), which is g^|t-m| for the last one."""
    case = random_case(70, seed=2, batch=2, padding=padding)
    causal = attend(mechanism, case, True)
    for now in [0, 1, 2, 30, 31, 62, 63, 64, 65, 69]:
        prefix = attend(mechanism, case.at(slice(now + 1)), False)
        assert_close(prefix[:, :, now], causal[:, :, now])


@EVERY_LINEAR
def test_stepping_is_causal(mechanism: str) -> None:
    case = random_case(70, seed=3)
    state, outs = start(mechanism, case), []
    for now in range(case.length):
        one = case.at(slice(now, now + 1))
        out, state = ops.step(mechanism, one.q, one.k, one.v, state, **decay_of(mechanism, one))
        outs.append(out)
    assert_close(torch.cat(outs, 2), attend(mechanism, case, True))
    assert_same_state(state, resume(mechanism, case, start(mechanism, case))[1])


def assert_same_state(actual: ops.State, expected: ops.State) -> None:
    assert_close(actual.memory, expected.memory)
    assert_close(actual.column, expected.column)
    assert_close(actual.count, expected.count)
    assert (actual.peak is None) == (expected.peak is None)
    if actual.peak is not None and expected.peak is not None:
        assert torch.equal(actual.peak, expected.peak)


@EVERY_LINEAR
@pytest.mark.parametrize("padding", ["none", "end", "random"])
@FEW
@given(seed=SEEDS, cuts=st.sets(st.integers(1, 149), max_size=6))
def test_cut_anywhere_and_resumed_is_uncut(mechanism, padding, seed, cuts) -> None:
    case = random_case(150, seed, batch=2, padding=padding)
    borders = [0, *sorted(cuts), 150]
    state, outs = start(mechanism, case), []
    for begin, end in pairwise(borders):
        out, state = resume(mechanism, case.at(slice(begin, end)), state)
        outs.append(out)
    assert_close(torch.cat(outs, 2), attend(mechanism, case, True))
    assert_same_state(state, resume(mechanism, case, start(mechanism, case))[1])


@EVERY_LINEAR
def test_padding_leaves_the_state_alone(mechanism: str) -> None:
    case = random_case(20, seed=4)
    state = resume(mechanism, case, start(mechanism, case))[1]
    padded = replace(random_case(67, seed=5), keep=torch.zeros(3, 67, dtype=torch.bool))
    out, after = resume(mechanism, padded, state)
    assert_same_state(after, state)
    assert (out == 0).all()


@EVERY_LINEAR
def test_padding_leaves_an_empty_state_empty(mechanism: str) -> None:
    padded = random_case(67, seed=5, padding="all")
    empty = start(mechanism, padded)
    assert_same_state(resume(mechanism, padded, empty)[1], empty)


@EVERY_LINEAR
def test_a_step_does_not_change_the_state_it_is_given(mechanism: str) -> None:
    case = random_case(1, seed=6)
    state = start(mechanism, case)
    resume(mechanism, case, state)
    assert_same_state(state, start(mechanism, case))


@EVERY_LINEAR
def test_resume_has_the_gradients_of_the_whole(mechanism: str) -> None:
    """Through the state too: truncated training would differ."""
    case = random_case(40, seed=7, padding="random")
    whole, cut = (case.map(lambda x: x.clone().requires_grad_()) for _ in range(2))
    weight = torch.randn(case.v.shape, dtype=case.v.dtype)
    (attend(mechanism, whole, True) * weight).sum().backward()
    first, state = resume(mechanism, cut.at(slice(17)), start(mechanism, case))
    second, _ = resume(mechanism, cut.at(slice(17, 40)), state)
    (torch.cat([first, second], 2) * weight).sum().backward()
    for name in ("q", "k", "v"):
        assert_close(getattr(cut, name).grad, getattr(whole, name).grad)
