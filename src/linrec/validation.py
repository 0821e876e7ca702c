"""Validation errors of pydantic as one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from linrec.types import LinrecError

if TYPE_CHECKING:
    from pydantic import ValidationError


def explain(error: ValidationError) -> str:
    """The first problem: which field it is, what it must be and what it is.

    The text may hold marked arguments (`linrec.types.argument`): put it into an `InputError`.
    """
    first, *others = error.errors()
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, LinrecError):  # the class has a sentence of its own
        return str(cause.args[0])
    path = [str(part) for part in first["loc"]]
    name = path[-1] if path else "the content"
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"unknown setting {name!r}" + (f" in {'.'.join(path[:-1])}" if path[1:] else "")
    if first["type"] == "missing":
        return f"{name} is missing"
    # a field of several types has one error for each, under the name of the type
    same = [
        other for other in others if path and other["loc"][: len(path) - 1] == first["loc"][:-1]
    ]
    if len(path) > 1 and same:
        name = path[-2]
        kinds = dict.fromkeys(_expected(each) for each in (first, *same))
        return f"{name} must be {' or '.join(kinds)}, not {_short(first['input'])}"
    if "Input should be " not in first["msg"]:
        return f"{name}: {first['msg']}"
    return f"{name} must be {_expected(first)}, not {_short(first['input'])}"


def _expected(problem: Any) -> str:
    message = str(problem["msg"]).removeprefix("Input should be ")
    return message.split(", unable to")[0]


def _short(value: object) -> str:
    return repr(value)[:60]
