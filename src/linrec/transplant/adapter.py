"""What linrec knows of one class of attention: how to recognise it, refuse it or take it over.

Classes are recognised by name, so that no framework is imported but by the model that uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from linrec.nn import Attention, Causal

# hooks see what torch's own call of a module passes; they would stay behind on the old module
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class Place:
    """A module, and what it is in the model."""

    name: str  # dotted, from the model
    parent: nn.Module
    child: str  # its name in the parent
    module: Any  # an nn.Module, whose attributes are its framework's


def as_it_is(_: Place) -> str | None:
    return None


def nothing_more(_: nn.Module) -> None:
    return None


@dataclass(frozen=True)
class Adapter:
    """One class of one framework."""

    class_name: str  # with its module, as in "torch.nn.modules.activation.MultiheadAttention"
    convert: Callable[[Any, str, Causal], Attention]
    why_not: Callable[[Place], str | None] = as_it_is
    settle: Callable[[nn.Module], None] = nothing_more  # what the model around it needs, afterwards

    def base_of(self, module: nn.Module) -> type | None:
        """The class that is known, of those that the module's class descends from."""
        return next(
            (base for base in type(module).__mro__ if qualified(base) == self.class_name), None
        )

    def refusal(self, place: Place) -> str | None:
        """Why this module stays, or None."""
        base, own = self.base_of(place.module), type(place.module)
        if base is None or own.forward is not base.forward or "forward" in vars(place.module):  # type: ignore[attr-defined]
            return f"{own.__name__} has a forward of its own, and only {self.class_name}'s is known"
        if any(getattr(place.module, hooks, None) for hooks in _HOOKS):
            return "it has hooks, which would stay behind; remove them and add them again"
        if nn.utils.parametrize.is_parametrized(place.module):
            return "its weights are parametrized, and only plain ones can be taken over"
        return self.why_not(place)


def qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
