"""Validation errors of pydantic as one sentence, for settings, files and requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from linrec.types import LinrecError

if TYPE_CHECKING:
    from pydantic import ValidationError


def explain(error: ValidationError) -> str:
    """The first problem: which field it is, what it must be and what it is.

    The text may hold marked arguments (`linrec.types.argument`): put it into an `InputError`.
    """
    first, *others = error.errors()
    own = _own_sentence(first)
    if own is not None:
        return str(own.args[0])
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


def explain_field(problem: Any, path: Sequence[str], name: Callable[[str, str | None], str]) -> str:
    """Where in a request and what; the value itself is not repeated.

    path: the keys that lead to the field. name: how the caller spells an argument.
    """
    where = ".".join(path)
    if problem["type"] == "missing":
        return f"{where} is missing"
    own = _own_sentence(problem)
    if own is not None:
        message = own.render(name)
    else:
        message = str(problem["msg"]).removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
    return f"{where}: {message}" if where else message


def _own_sentence(problem: Any) -> LinrecError | None:
    """What the validated class itself said, if it did."""
    cause = problem.get("ctx", {}).get("error")
    return cause if isinstance(cause, LinrecError) else None


def _expected(problem: Any) -> str:
    message = str(problem["msg"]).removeprefix("Input should be ")
    return message.split(", unable to")[0]


def _short(value: object) -> str:
    return repr(value)[:60]
