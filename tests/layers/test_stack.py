"""The stack: places in the history, and events that go on from a state."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from linrec import ops
from linrec.layers import Stack, StackShape, StackState
from linrec.types import InputError

SHAPE = StackShape(
    attention="linrec-decay", causal=True, width=8, heads=2, layers=2, inner=12, dropout=0.0,
    norm="post", positions=32,
)  # fmt: skip
EVERY_STATE = pytest.mark.parametrize(
    "attention", [name for name in ops.MECHANISMS if ops.has_state(name)]
)


def stack(**changes: object) -> Stack:
    torch.manual_seed(0)
    return Stack(replace(SHAPE, **changes)).double()


def events(length: int, batch: int = 3, seed: int = 1) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, SHAPE.width, generator=rng).double()


def ragged(*lengths: int, of: int) -> Tensor:
    return torch.arange(of) < torch.tensor(lengths)[:, None]


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_positions_are_clamped_at_the_last_learned_one(causal: bool) -> None:
    """Without blocks what is left is the normalised sum of event and position."""
    layer = stack(layers=0, positions=4, causal=causal)
    same = torch.ones(1, 10, 8).double() * torch.arange(8)
    out, _ = layer(same, torch.ones(1, 10, dtype=torch.bool))
    for position in range(4, 10):
        assert torch.equal(out[0, position], out[0, 3])
    assert not torch.equal(out[0, 2], out[0, 3])
    position = layer.position(torch.tensor([0, 1, 2, *[3] * 7]))
    assert_close(out[0], layer.norm(same[0] + position))


def test_every_position_learns_and_no_other() -> None:
    layer = stack(positions=6)
    out, _ = layer(events(4), torch.ones(3, 4, dtype=torch.bool))
    # each number weighs otherwise: a normalised vector's plain sums are constant
    (out * torch.arange(8)).sum().backward()
    moved = (layer.position.weight.grad != 0).any(1)
    assert moved.tolist() == [True] * 4 + [False] * 2


def test_pre_norm_ends_in_a_norm() -> None:
    keep = torch.ones(3, 5, dtype=torch.bool)
    for norm in ("pre", "post"):
        out, _ = stack(norm=norm)(100 * events(5), keep)
        assert_close(out.mean(-1), torch.zeros(3, 5).double())
        assert_close(out.square().mean(-1).round(decimals=3), torch.ones(3, 5).double())


def test_without_a_state_none_comes_back() -> None:
    assert stack()(events(5), torch.ones(3, 5, dtype=torch.bool))[1] is None


@pytest.mark.parametrize("norm", ["pre", "post"])
@EVERY_STATE
def test_resumed_from_nothing_is_forward(attention: str, norm: str) -> None:
    layer, x, keep = stack(attention=attention, norm=norm), events(70), ragged(70, 33, 1, of=70)
    whole, _ = layer(x, keep)
    actual, state = layer(x, keep, layer.start(3))
    assert_close(actual[keep], whole[keep])
    assert state.seen.tolist() == [70, 33, 1]
    assert len(state.layers) == SHAPE.layers


@EVERY_STATE
def test_one_event_at_a_time_is_forward(attention: str) -> None:
    """Past the last learned position too."""
    layer, x = stack(attention=attention, positions=5), events(12)
    every = torch.ones(3, 12, dtype=torch.bool)
    state, outs = layer.start(3), []
    for now in range(12):
        out, state = layer(x[:, now : now + 1], every[:, :1], state)
        outs.append(out)
    assert_close(torch.cat(outs, 1), layer(x, every)[0])
    assert state.seen.tolist() == [12] * 3


def histories(pieces: list[Tensor], keeps: list[Tensor], row: int) -> Tensor:
    """The kept events of one user, end to end: [1, n, width]."""
    return torch.cat([x[row][keep[row]] for x, keep in zip(pieces, keeps, strict=True)])[None]


@EVERY_STATE
def test_rows_advance_by_as_many_events_as_they_have(attention: str) -> None:
    """One user with three events, then none; another with none, then two; and so on."""
    layer = stack(attention=attention, positions=6)
    keeps = [ragged(3, 0, 2, of=4), ragged(0, 2, 4, of=4), ragged(4, 1, 0, of=4)]
    pieces = [events(4, seed=seed) for seed in range(3)]
    state, outs = layer.start(3), []
    for x, keep in zip(pieces, keeps, strict=True):
        out, state = layer(x, keep, state)
        outs.append(out)
    assert state.seen.tolist() == [7, 3, 6]
    for row in range(3):
        alone = histories(pieces, keeps, row)
        every = torch.ones(1, alone.shape[1], dtype=torch.bool)
        expected, last = layer(alone, every, layer.start(1))
        assert_close(histories(outs, keeps, row), expected)
        assert_close(expected, layer(alone, every)[0])
        for actual, right in zip(state.layers, last.layers, strict=True):
            assert_close(actual.memory[row : row + 1], right.memory)
            assert_close(actual.column[row : row + 1], right.column)
            assert_close(actual.count[row : row + 1], right.count)


def test_a_state_is_not_changed_by_what_goes_on_from_it() -> None:
    layer, keep = stack(), torch.ones(3, 4, dtype=torch.bool)
    _, state = layer(events(4), keep, layer.start(3))
    first, _ = layer(events(4, seed=2), keep, state)
    layer(events(4, seed=3), keep, state)
    assert torch.equal(layer(events(4, seed=2), keep, state)[0], first)
    assert state.seen.tolist() == [4] * 3


def test_no_events_leave_the_state_alone() -> None:
    layer = stack()
    _, state = layer(events(4), torch.ones(3, 4, dtype=torch.bool), layer.start(3))
    out, after = layer(events(0), torch.ones(3, 0, dtype=torch.bool), state)
    assert out.shape == (3, 0, 8)
    assert_same(after, state)


def assert_same(actual: StackState, expected: StackState) -> None:
    assert torch.equal(actual.seen, expected.seen)
    for one, other in zip(actual.layers, expected.layers, strict=True):
        assert torch.equal(one.memory, other.memory)


def test_softmax_has_no_state_to_start_from() -> None:
    with pytest.raises(InputError, match="softmax keeps no state of fixed size"):
        stack(attention="softmax").start(3)


def test_the_size_of_the_state_does_not_depend_on_the_history() -> None:
    layer = stack()

    def numbers(length: int) -> int:
        every = torch.ones(3, length, dtype=torch.bool)
        _, state = layer(events(length), every, layer.start(3))
        return sum(
            part.numel() for held in state.layers for part in (held.memory, held.column, held.count)
        )

    assert numbers(3) == numbers(200)
