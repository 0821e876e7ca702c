"""A user's state as named tensors: the inputs and outputs of a graph, and what a store keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor

State = Any
"""A tensor, None, or tuples and dataclasses of them."""


def tensors_of(state: State, name: str = "state") -> dict[str, Tensor]:
    """Every tensor of a state by the path that leads to it, as state.0.layers.1.memory."""
    if isinstance(state, Tensor):
        return {name: state}
    tensors: dict[str, Tensor] = {}
    for part, value in _parts(state):
        tensors |= tensors_of(value, f"{name}.{part}")
    return tensors


def state_of(like: State, tensors: Mapping[str, Tensor], name: str = "state") -> State:
    """The state of the same form as `like` that is made of these tensors."""
    if isinstance(like, Tensor):
        return tensors[name]
    parts = {part: state_of(value, tensors, f"{name}.{part}") for part, value in _parts(like)}
    if isinstance(like, tuple):
        return tuple(parts.values())
    return replace(like, **parts) if parts else like


def _parts(state: State) -> Iterator[tuple[str, State]]:
    if isinstance(state, tuple):
        yield from ((str(index), part) for index, part in enumerate(state))
    elif is_dataclass(state):
        yield from ((field.name, getattr(state, field.name)) for field in fields(state))
    elif state is not None:
        raise TypeError(f"a state holds tensors, tuples and dataclasses, not {type(state)}")
