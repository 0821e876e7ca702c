"""Values as TOML writes them; Python reads the format and does not write it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def toml_value(value: Any) -> str:
    """A string, number, boolean or a list of them.

    >>> toml_value([0.001, True, 'a "b"'])
    '[0.001, true, "a \\\\"b\\\\""]'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Sequence):
        return f"[{', '.join(map(toml_value, value))}]"
    return repr(value)


def toml_table(name: str, values: Mapping[str, Any]) -> str:
    """A table and its values; None, which TOML has not, is left out."""
    given = [(key, value) for key, value in values.items() if value is not None]
    return (
        "\n".join([f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in given)]) + "\n"
    )
