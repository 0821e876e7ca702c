"""Which ids of users, items and events are accepted."""

from __future__ import annotations

import unicodedata

from linrec.types import InputError

MAX_LENGTH = 256


def check_new_id(text: str) -> str:
    """An id that may be stored: text that every address, log and file can hold."""
    if not 1 <= len(text) <= MAX_LENGTH:
        raise InputError(f"an id must have 1 to {MAX_LENGTH} characters")
    if text.isascii() and text.isprintable():  # the usual case, in one look
        return text
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise InputError(
            "an id must not contain control characters, such as a line break or a zero character"
        )
    return text
