"""Event by event or all at once, a history is the same; what cannot do that says so."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from torch import Tensor

from linrec.data.dataset.sequences import Sequences
from linrec.types import PAD, InputError
from tests.contracts.cases import (
    BOTH_WAYS,
    CAUSAL_BACKBONES,
    CLOCK,
    EVERY_ATTENTION,
    EVERY_BLOCK,
    LINEAR_ATTENTION,
    N_ITEMS,
    RECIPE,
    WITH_AND_WITHOUT_TIME,
    close,
    hidden,
    history,
    model,
    narrow_model,
    sequences,
    times_of,
)

USERS = 3
Deliveries = list[tuple[int, ...]]
MOMENTS = (0.0, 0.0, 5.0, 5.5, 300.0, 1e5, math.nan)
DELIVERIES = st.lists(st.tuples(*[st.integers(0, 4)] * USERS), min_size=1, max_size=4)


def tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from tensors(part)
    elif is_dataclass(state):
        for part in fields(state):
            yield from tensors(getattr(state, part.name))
    else:
        assert state is None, "a part of the state that is not counted"


@EVERY_BLOCK
@CAUSAL_BACKBONES
@LINEAR_ATTENTION
def test_event_by_event_is_all_at_once(
    backbone: str, attention: str, block: dict[str, Any]
) -> None:
    encoder = model(backbone, attention, **block)
    items = torch.cat([history(18), history(18, seed=1)])
    times, state = times_of(items), encoder.start(2)
    steps = []
    for now in range(18):
        state = encoder.advance(items[:, now : now + 1], state, times[:, now : now + 1])
        steps.append(encoder.request(state, CLOCK[now + 1]))
    close(torch.stack(steps, 1), hidden(encoder, items))


@EVERY_BLOCK
@CAUSAL_BACKBONES
@LINEAR_ATTENTION
@given(
    deliveries=DELIVERIES,
    clock=st.lists(st.sampled_from(MOMENTS), min_size=16, max_size=16),
    at=st.sampled_from(MOMENTS),
)
@effort(max_examples=4)
def test_cut_anywhere_and_resumed_is_the_whole_history(
    backbone: str, attention: str, block: dict[str, Any], deliveries: Deliveries, clock, at
) -> None:
    """Each delivery brings some users more events than others, and some none.

    Times may be equal, missing or go backwards, and a request may come before the last event.
    """
    encoder = model(backbone, attention, **block)
    events = [history(4 * len(deliveries), seed)[0] for seed in range(USERS)]
    seen, state = [0] * USERS, encoder.start(USERS)
    for counts in deliveries:
        items = torch.full((USERS, max(*counts, 1)), PAD)
        times = torch.full(items.shape, 1e9, dtype=torch.float64)  # of padding, which nobody reads
        for user, count in enumerate(counts):
            now = slice(seen[user], seen[user] + count)
            items[user, :count] = events[user][now]
            times[user, :count] = torch.tensor(clock[now])
            seen[user] += count
        state = encoder.advance(items, state, times)
    known = [user for user, count in enumerate(seen) if count]
    histories = [events[user][: seen[user]].numpy().astype("int32") for user in known]
    whole = Sequences.of(histories, [clock[: seen[user]] for user in known], [at] * len(known))
    if known:
        close(encoder.request(state, at)[known], encoder.encode(whole))


# of the largest number; whole and step by step, products and sums are taken in another order
PRECISIONS = {"float32": 1e-5, "bfloat16": 1e-2}


@pytest.mark.parametrize("precision", list(PRECISIONS))
@CAUSAL_BACKBONES
@LINEAR_ATTENTION
def test_event_by_event_is_all_at_once_as_it_is_computed(
    backbone: str, attention: str, precision: str
) -> None:
    """With the blocks and the kernels of the default recipe, for histories of odd lengths, padded
    together, and for a batch of one."""
    encoder = narrow_model(backbone, attention, **RECIPE, width=32, heads=4)
    lengths = (1, 7, 33, 65)
    items = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    for row, length in enumerate(lengths):
        items[row, :length] = history(length)[0]
    times, state, steps = times_of(items), encoder.start(len(lengths)), []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision != "float32"):
        whole = hidden(encoder, items).float()
        for now in range(max(lengths)):
            state = encoder.advance(items[:, now : now + 1], state, times[:, now : now + 1])
            steps.append(encoder.request(state, CLOCK[now + 1]).float())
        alone = [hidden(encoder, items[[row], :n])[0].float() for row, n in enumerate(lengths)]
    tolerance = PRECISIONS[precision] * whole.abs().max().item()
    for row, length in enumerate(lengths):
        expected = whole[row, :length]
        for found in (torch.stack(steps, 1)[row, :length], alone[row]):
            torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    if precision == "float32":  # nor does any kernel add an error of its own
        exact = hidden(encoder.double(), items)[items != PAD]
        torch.testing.assert_close(whole[items != PAD].double(), exact, rtol=0, atol=tolerance)


@CAUSAL_BACKBONES
@LINEAR_ATTENTION
def test_a_request_changes_nothing(backbone: str, attention: str) -> None:
    encoder = model(backbone, attention, time_gaps=True)
    items = history(9)
    state = encoder.advance(items, encoder.start(1), times_of(items))
    before = [part.clone() for part in tensors(state)]
    soon, later = (encoder.request(state, CLOCK[8] + wait) for wait in (1.0, 1e6))
    assert not torch.allclose(soon, later)
    close(encoder.request(state, CLOCK[8] + 1.0), soon)
    for part, kept in zip(tensors(state), before, strict=True):
        torch.testing.assert_close(part, kept, rtol=0, atol=0, equal_nan=True)


@CAUSAL_BACKBONES
@WITH_AND_WITHOUT_TIME
def test_without_times_they_are_unknown(backbone: str, time_gaps: bool) -> None:
    encoder, items = model(backbone, "linrec-decay", time_gaps=time_gaps), history(9)
    state = encoder.advance(items, encoder.start(1))
    close(encoder.request(state), encoder.encode(sequences(items).without_times()))


def test_times_of_another_shape_are_refused() -> None:
    encoder = model("sasrec", "linrec", time_gaps=True)
    with pytest.raises(InputError, match=r"times must be .* = \[1, 4\] .*, not \[1, 3\]"):
        encoder.advance(history(4), encoder.start(1), torch.zeros(1, 3))


@CAUSAL_BACKBONES
@LINEAR_ATTENTION
@WITH_AND_WITHOUT_TIME
def test_the_state_does_not_grow(backbone: str, attention: str, time_gaps: bool) -> None:
    encoder = model(backbone, attention, time_gaps=time_gaps)
    assert encoder.why_no_state() is None
    first = encoder.start(2)
    after = encoder.advance(torch.randint(1, N_ITEMS, (2, 3)), first)
    much_later = encoder.advance(torch.randint(1, N_ITEMS, (2, 200)), after)
    shapes = [[part.shape for part in tensors(state)] for state in (first, after, much_later)]
    assert shapes[0] == shapes[1] == shapes[2]
    assert sum(shape.numel() for shape in shapes[0]) > 0


@BOTH_WAYS
@EVERY_ATTENTION
def test_what_reads_both_ways_says_that_it_re_encodes(
    backbone: str, objective: str, attention: str
) -> None:
    message = f"{backbone} trained on {objective} reads a history both ways.*re-encodes"
    assert_refused(message, backbone, attention, objective=objective)


@CAUSAL_BACKBONES
def test_softmax_says_that_it_re_encodes(backbone: str) -> None:
    assert_refused("softmax attention keeps no state.*re-encodes", backbone, "softmax")


@CAUSAL_BACKBONES
@LINEAR_ATTENTION
def test_a_max_length_says_that_it_re_encodes(backbone: str, attention: str) -> None:
    assert_refused("with max_length 10 .*re-encodes", backbone, attention, max_length=10)


def assert_refused(message: str, backbone: str, attention: str, **changes: Any) -> None:
    encoder = model(backbone, attention, **changes)
    with pytest.raises(InputError, match=message) as refused:
        encoder.start(1)
    assert str(refused.value) == encoder.why_no_state()
    assert "\n" not in str(refused.value)
