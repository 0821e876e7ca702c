"""The mean over every prefix: the softmax written out, whatever the length, padding and logits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from linrec import ops
from linrec.ops import MeanState, reference
from tests.ops.cases import TOLERANCE, Padding, assert_close, random_keep

LENGTHS = [1, 2, 63, 64, 65, 130]
PADDINGS = pytest.mark.parametrize("padding", ["none", "end", "start", "random"])
SEEDS = st.integers(0, 2**31)


@dataclass(frozen=True)
class Events:
    x: Tensor  # [B, N, D]
    logit: Tensor  # [B, N]
    keep: Tensor | None  # [B, N]

    def to(self, dtype: torch.dtype) -> Events:
        return replace(self, x=self.x.to(dtype), logit=self.logit.to(dtype))

    def at(self, positions: slice | Tensor) -> Events:
        keep = None if self.keep is None else self.keep[:, positions]
        return Events(self.x[:, positions], self.logit[:, positions], keep)

    @property
    def begun(self) -> Tensor:
        """[B, N], True where there is an event so far."""
        kept = torch.ones_like(self.logit) if self.keep is None else self.keep
        return kept.cumsum(1) > 0

    def leaves(self) -> Events:
        return replace(self, **{n: getattr(self, n).clone().requires_grad_() for n in LEAVES})


LEAVES = ("x", "logit")


def random_events(
    length: int, seed: int = 0, *, batch: int = 3, padding: Padding = "none"
) -> Events:
    """Numbers that every precision holds exactly, so that one oracle serves all."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, length, 5, generator=rng).bfloat16().double()
    logit = (3 * torch.randn(batch, length, generator=rng)).bfloat16().double()
    return Events(x, logit, random_keep(padding, batch, length, rng))


def fast(events: Events) -> Tensor:
    return ops.running_mean(events.x, events.logit, keep=events.keep)[0]


def slow(events: Events) -> Tensor:
    return reference.running_mean(events.x, events.logit, keep=events.keep)


def values_and_grads(form, events: Events) -> dict[str, Tensor]:
    """Gradients for one cotangent, which asks nothing of a mean of nothing (tested by itself)."""
    leaves = events.leaves()
    out = form(leaves)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    (out * cotangent.to(out.dtype) * events.begun[..., None]).sum().backward()
    actual = {"out": out.detach(), "x": leaves.x.grad, "logit": leaves.logit.grad}
    return {name: value.double() for name, value in actual.items()}


def assert_as_the_oracle(events: Events, *precisions: torch.dtype) -> None:
    expected = values_and_grads(slow, events)
    for dtype in precisions or tuple(TOLERANCE):
        actual = values_and_grads(fast, events.to(dtype))
        for name, value in expected.items():
            # the gradient of a lone event's logit is zero but for rounding: x's is the measure
            scale = max(value.abs().max(), expected["x"].abs().max())
            error = (actual[name] - value).abs().max()
            assert error <= TOLERANCE[dtype] * scale, f"{name} in {dtype} is off by {error:.2g}"


@PADDINGS
@pytest.mark.parametrize("length", LENGTHS)
def test_every_length_and_padding(length: int, padding: Padding) -> None:
    assert_as_the_oracle(random_events(length, seed=length, batch=2, padding=padding))
    assert_as_the_oracle(random_events(length, seed=length + 1, batch=1, padding=padding))


def test_by_hand() -> None:
    """Weights 1, 3 and, after a padded event, 4."""
    x = torch.tensor([[[8.0], [4.0], [1e9], [1.0]]])
    logit = torch.tensor([[1.0, 3.0, 50.0, 4.0]]).log()
    keep = torch.tensor([[True, True, False, True]])
    mean, state = ops.running_mean(x, logit, keep=keep)
    torch.testing.assert_close(mean[0, [0, 1, 3], 0], torch.tensor([8.0, 5.0, 3.0]))
    torch.testing.assert_close(state.peak, torch.tensor([4.0]).log())
    # relative to the largest weight: (8 + 12 + 4) / 4 and (1 + 3 + 4) / 4
    torch.testing.assert_close(state.total, torch.tensor([[6.0, 2.0]]))


def test_equal_logits_give_the_plain_mean() -> None:
    events = random_events(70, seed=1)
    plain = events.x.cumsum(1) / torch.arange(1, 71)[:, None]
    assert_close(fast(replace(events, logit=torch.full_like(events.logit, -7.0))), plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_precision_of_the_vectors_comes_back(dtype: torch.dtype) -> None:
    events = random_events(9, padding="end").to(dtype)
    mean, state = ops.running_mean(events.x, events.logit, keep=events.keep)
    assert mean.dtype == dtype
    assert state.total.dtype == state.peak.dtype == torch.float32  # sums are never narrow


# ------------------------------------------------------------------------------------------ padding


@settings(max_examples=20)
@given(seed=SEEDS, length=st.integers(1, 70), most=st.integers(0, 3), after=st.integers(0, 70))
def test_padding_changes_nothing(seed, length, most, after) -> None:
    events = random_events(length, seed, batch=2)
    rng = torch.Generator().manual_seed(seed)
    positions = torch.arange(length) + torch.randint(0, most + 1, (length,), generator=rng).cumsum(
        0
    )
    total = int(positions[-1]) + 1 + after
    x, logit = 1e3 * torch.randn(2, total, 5).double(), 1e3 * torch.randn(2, total).double()
    keep = torch.zeros(2, total, dtype=torch.bool)
    x[:, positions], logit[:, positions], keep[:, positions] = events.x, events.logit, True
    actual, state = ops.running_mean(x, logit, keep=keep)
    expected, state_without = ops.running_mean(events.x, events.logit)
    assert_close(actual[:, positions], expected)
    assert actual.isfinite().all()
    assert_same_state(state, state_without)


def test_padding_gets_no_gradient() -> None:
    events = random_events(130, seed=2, padding="random")
    events.keep[1] = False
    leaves = events.leaves()
    fast(leaves)[events.keep].square().sum().backward()
    for name in LEAVES:
        grad = getattr(leaves, name).grad
        assert grad.isfinite().all()
        assert (grad[~events.keep] == 0).all()
        assert (grad[events.keep] != 0).any()


def test_a_row_of_padding_has_the_mean_zero() -> None:
    events = random_events(66, seed=3, padding="all")
    mean, state = ops.running_mean(events.x, events.logit, keep=events.keep)
    assert (mean == 0).all()
    assert (state.total == 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_mean_of_nothing_has_no_gradient(dtype: torch.dtype) -> None:
    """Even where the loss asks about positions before the first event."""
    leaves = random_events(40, seed=3, padding="start").to(dtype).leaves()
    (100 * fast(leaves)).sum().backward()
    for name in LEAVES:
        grad = getattr(leaves, name).grad
        assert grad.isfinite().all()
        assert (grad[~leaves.keep] == 0).all()


def test_rows_do_not_see_each_other() -> None:
    events = random_events(70, seed=4, padding="random")
    together = fast(events)
    for row in range(3):
        one = Events(*(part[row : row + 1] for part in (events.x, events.logit, events.keep)))
        assert_close(fast(one), together[row : row + 1])


# -------------------------------------------------------------------------------------------- state


def assert_same_state(actual: MeanState, expected: MeanState) -> None:
    assert_close(actual.total, expected.total)
    assert torch.equal(actual.peak, expected.peak)


def empty(events: Events) -> MeanState:
    return ops.start_mean(len(events.x), events.x.shape[-1], dtype=events.x.dtype)


def resumed(events: Events, state: MeanState) -> tuple[Tensor, MeanState]:
    return ops.running_mean(events.x, events.logit, keep=events.keep, state=state)


def in_pieces(events: Events, borders: list[int]) -> tuple[Tensor, MeanState]:
    state, outs = empty(events), []
    for begin, end in pairwise(borders):
        out, state = resumed(events.at(slice(begin, end)), state)
        outs.append(out)
    return torch.cat(outs, 1), state


@PADDINGS
@settings(max_examples=15)
@given(seed=SEEDS, cuts=st.sets(st.integers(1, 149), max_size=6))
def test_cut_anywhere_and_resumed_is_uncut(padding, seed, cuts) -> None:
    events = random_events(150, seed, batch=2, padding=padding)
    actual, state = in_pieces(events, [0, *sorted(cuts), 150])
    expected, last = ops.running_mean(events.x, events.logit, keep=events.keep)
    assert_close(actual, expected)
    assert_same_state(state, last)


def test_one_event_at_a_time_is_uncut() -> None:
    events = random_events(70, seed=5, padding="end")
    assert_close(in_pieces(events, list(range(71)))[0], fast(events))


def test_resume_has_the_gradients_of_the_whole() -> None:
    events = random_events(100, seed=6, padding="random")
    expected = values_and_grads(fast, events)
    actual = values_and_grads(lambda some: in_pieces(some, [0, 1, 40, 100])[0], events)
    for name, value in expected.items():
        assert_close(actual[name], value)


def test_padding_leaves_the_state_alone() -> None:
    events = random_events(20, seed=7)
    state = resumed(events, empty(events))[1]
    padded = random_events(67, seed=8, padding="all")
    out, after = resumed(padded, state)
    assert_same_state(after, state)
    assert_close(out, fast(events)[:, -1:].expand(-1, 67, -1))


def test_the_state_given_is_not_changed() -> None:
    events = random_events(3, seed=9)
    state = empty(events)
    resumed(events, state)
    assert_same_state(state, empty(events))


def test_no_events_leave_the_state_alone() -> None:
    events = random_events(3, seed=10)
    state = resumed(events, empty(events))[1]
    out, after = resumed(events.at(slice(0)), state)
    assert out.shape == (3, 0, 5)
    assert_same_state(after, state)


# ------------------------------------------------------------------------------------- huge logits


def steep(kind: str, length: int) -> Tensor:
    time = torch.arange(length, dtype=torch.float64)
    return {
        "rising": 2e4 * time / length - 1e4,
        "falling": 1e4 - 2e4 * time / length,
        "alternating": 1e4 * (-1) ** time,
        "one early": torch.where(time == 3, 1e4, -1e4),
        "one late": torch.where(time == length - 3, 1e4, -1e4),
        "low": torch.full_like(time, -1e4),
    }[kind]


STEEP = pytest.mark.parametrize(
    "kind", ["rising", "falling", "alternating", "one early", "one late", "low"]
)


@STEEP
@pytest.mark.parametrize("padding", ["none", "random"])
def test_huge_logits_follow_the_oracle(kind: str, padding: Padding) -> None:
    events = random_events(130, seed=11, batch=2, padding=padding)
    # rounded once, so that float32 gets the same numbers
    events = replace(events, logit=(events.logit + steep(kind, 130)).float().double())
    assert_as_the_oracle(events, torch.float64, torch.float32)


@STEEP
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_huge_logits_are_finite_when_resumed(kind: str, dtype: torch.dtype) -> None:
    events = random_events(130, seed=12)
    leaves = replace(events, logit=events.logit + steep(kind, 130)).to(dtype).leaves()
    out, state = in_pieces(leaves, [0, 1, 64, 70, 130])
    out.sum().backward()
    for part in (out, state.total, state.peak, leaves.x.grad, leaves.logit.grad):
        assert part.isfinite().all()
