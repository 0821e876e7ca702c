"""Ids in addresses: every id is reachable, and what is not UTF-8 is refused.

Servers decode an address before it is routed, so that a slash inside an id looks like one between
the parts, and bytes that are not UTF-8 become another id. Here an encoded slash stays apart until
the id is read.
"""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Scope

# a character that means nothing in Unicode; where an id has it all the same, it is escaped too
_MARK = "\ufdd0"
_ESCAPED = {_MARK: f"{_MARK}0", "/": f"{_MARK}1"}


class BadPathError(ValueError):
    """An address that is not text."""


def decoded_path(scope: Scope) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    try:
        parts = [unquote_to_bytes(part).decode() for part in raw.split(b"/")]
    except UnicodeDecodeError:
        raise BadPathError("an id in an address must be UTF-8, percent-encoded") from None
    return "/".join(_escaped(part) for part in parts)


def _escaped(part: str) -> str:
    for character, escaped in _ESCAPED.items():
        part = part.replace(character, escaped)
    return part


class IdConvertor(Convertor[str]):
    """Any text, also line breaks and slashes, encoded or not."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        for character, escaped in reversed(_ESCAPED.items()):
            value = value.replace(escaped, character)
        return value

    def to_string(self, value: str) -> str:
        return value.replace("/", "%2F")


register_url_convertor("id", IdConvertor())
