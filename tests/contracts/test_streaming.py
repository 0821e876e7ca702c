"""Event by event or all at once, a history is the same; what cannot do that says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from torch import Tensor

from linrec.types import PAD, InputError
from tests.contracts.cases import (
    BOTH_WAYS,
    CAUSAL_BACKBONES,
    EVERY_ATTENTION,
    EVERY_BLOCK,
    LINEAR_ATTENTION,
    N_ITEMS,
    close,
    hidden,
    history,
    model,
)

USERS = 3
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
    backbone: str, attention: str, block: dict[str, bool]
) -> None:
    encoder = model(backbone, attention, **block)
    items = torch.cat([history(18), history(18, seed=1)])
    state = encoder.start(2)
    steps = []
    for now in range(18):
        step, state = encoder.advance(items[:, now : now + 1], state)
        steps.append(step)
    close(torch.cat(steps, 1), hidden(encoder, items))


@EVERY_BLOCK
@CAUSAL_BACKBONES
@LINEAR_ATTENTION
@given(deliveries=DELIVERIES)
@effort(max_examples=4)
def test_cut_anywhere_and_gone_on_from_there(
    backbone: str, attention: str, block: dict[str, bool], deliveries: list[tuple[int, ...]]
) -> None:
    """Each delivery brings some users more events than others, and some none."""
    encoder = model(backbone, attention, **block)
    events = [history(4 * len(deliveries), seed)[0] for seed in range(USERS)]
    found: list[list[Tensor]] = [[] for _ in range(USERS)]
    seen, state = [0] * USERS, encoder.start(USERS)
    for counts in deliveries:
        items = torch.full((USERS, max(*counts, 1)), PAD)
        for user, count in enumerate(counts):
            items[user, :count] = events[user][seen[user] : seen[user] + count]
            seen[user] += count
        out, state = encoder.advance(items, state, keep=items != PAD)
        for user, count in enumerate(counts):
            found[user].append(out[user, :count])
    for user, count in enumerate(seen):
        if count:
            close(torch.cat(found[user]), hidden(encoder, events[user][None, :count])[0])


@CAUSAL_BACKBONES
@LINEAR_ATTENTION
def test_the_state_does_not_grow(backbone: str, attention: str) -> None:
    encoder = model(backbone, attention)
    assert encoder.why_no_state() is None
    first = encoder.start(2)
    _, after = encoder.advance(torch.randint(1, N_ITEMS, (2, 3)), first)
    _, much_later = encoder.advance(torch.randint(1, N_ITEMS, (2, 200)), after)
    shapes = [[part.shape for part in tensors(state)] for state in (first, after, much_later)]
    assert shapes[0] == shapes[1] == shapes[2]
    assert sum(shape.numel() for shape in shapes[0]) > 0


@BOTH_WAYS
@EVERY_ATTENTION
def test_what_reads_both_ways_says_that_it_re_encodes(
    backbone: str, objective: str, attention: str
) -> None:
    told = f"{backbone} trained on {objective} reads a history both ways.*re-encodes"
    assert_refused(told, backbone, attention, objective=objective)


@CAUSAL_BACKBONES
def test_softmax_says_that_it_re_encodes(backbone: str) -> None:
    assert_refused("softmax attention keeps no state.*re-encodes", backbone, "softmax")


@CAUSAL_BACKBONES
@LINEAR_ATTENTION
def test_a_max_length_says_that_it_re_encodes(backbone: str, attention: str) -> None:
    assert_refused("with max_length 10 .*re-encodes", backbone, attention, max_length=10)


def assert_refused(told: str, backbone: str, attention: str, **changes: Any) -> None:
    encoder = model(backbone, attention, **changes)
    with pytest.raises(InputError, match=told) as refused:
        encoder.start(1)
    assert str(refused.value) == encoder.why_no_state()
    assert "\n" not in str(refused.value)
