"""The context of an event as servers keep it: JSON with sorted keys, so that equals are equal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from linrec.types import InputError, argument

Context = Mapping[str, str | int | float | bool | None]

MAX_FIELDS = 20
MAX_BYTES = 4_096


def context_text(given: Context | None) -> str | None:
    """What is stored of a context; None of one without any value."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InputError(f"the {argument('context')} of an event has values by name, not {given!r}")
    known = {name: value for name, value in given.items() if value is not None}
    if not known:
        return None
    for name, value in known.items():
        plain = isinstance(value, str | int | float)
        if (
            not isinstance(name, str)
            or not name
            or not plain
            or (isinstance(value, float) and not math.isfinite(value))
        ):
            raise InputError(
                f"the {argument('context')} of an event has texts, numbers and true or false by "
                f"name, not {value!r} as {name!r}"
            )
    text = json.dumps(known, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InputError(
            f"the {argument('context')} of an event must be text that UTF-8 can hold"
        ) from None
    if len(known) > MAX_FIELDS or size > MAX_BYTES:
        raise InputError(
            f"the {argument('context')} of an event has at most {MAX_FIELDS} values and "
            f"{MAX_BYTES:,} bytes"
        )
    return text


def context_of(text: str | None) -> dict[str, Any]:
    """What `context_text` made a text of."""
    if text is None:
        return {}
    found: dict[str, Any] = json.loads(text)
    return found
