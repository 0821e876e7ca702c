"""What linrec knows of one class of attention: how to recognise, refuse or convert it.

Classes are recognised by name, so that no framework is imported unless the model uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from linrec.nn import Attention, Causal

# hooks belong to the old module and would be lost with it
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class NamedModule:
    """A module, and where it is in the model."""

    name: str  # dotted, from the model
    parent: nn.Module
    child: str  # its name in the parent
    module: Any  # an nn.Module, whose attributes are its framework's


def no_reason(_: NamedModule) -> str | None:
    return None


def no_op(_: nn.Module) -> None:
    return None


@dataclass(frozen=True)
class Adapter:
    """One class of one framework."""

    class_name: str  # with its module, as in "torch.nn.modules.activation.MultiheadAttention"
    convert: Callable[[Any, str, Causal], Attention]
    why_not: Callable[[NamedModule], str | None] = no_reason
    finish: Callable[[nn.Module], None] = no_op  # what the rest of the model needs afterwards

    def base_of(self, module: nn.Module) -> type | None:
        """The known class among the bases of the module's class."""
        return next(
            (base for base in type(module).__mro__ if qualified(base) == self.class_name), None
        )

    def refusal(self, entry: NamedModule) -> str | None:
        """Why this module cannot be converted, or None."""
        base, own = self.base_of(entry.module), type(entry.module)
        if base is None or own.forward is not base.forward or "forward" in vars(entry.module):  # type: ignore[attr-defined]
            return f"{own.__name__} has a forward of its own, and only {self.class_name}'s is known"
        if any(getattr(entry.module, hooks, None) for hooks in _HOOKS):
            return "it has hooks, which would be lost; remove them, replace, and add them again"
        if nn.utils.parametrize.is_parametrized(entry.module):
            return "its weights are parametrized, and only plain weights can be converted"
        return self.why_not(entry)


def qualified(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
