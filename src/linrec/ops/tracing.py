"""What torch.compile is told of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def constant(function: Function) -> Function:
    """torch.compile takes the function's answer as it is, and does not look into it.

    `torch.compiler.assume_constant_result` sets the same mark, and imports the compiler for it,
    which takes longer than all other imports of torch together.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function
