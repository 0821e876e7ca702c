"""The one place where Polars' own errors become a sentence for the user."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator

import polars as pl

from linrec.types import InputError


@contextlib.contextmanager
def reading(
    what: str, remedy: str = "check that it is whole and of the format it seems"
) -> Iterator[None]:
    """Say that `what` could not be read, and why, whatever was raised while reading it.

    Polars answers malformed bytes with its own errors, with errors of the operating system and,
    where its parsers meet what they did not expect, with a panic, which is no Exception at all.
    """
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{what} does not exist; check the path") from error
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        OSError,
        EOFError,
        zlib.error,
        ValueError,
        TypeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise InputError(f"cannot read {what} ({first_line(error)}); {remedy}") from error


def first_line(error: BaseException) -> str:
    """The gist of an error: its first line, cut where it becomes a wall."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    gist = lines[0] if lines else type(error).__name__
    return gist if len(gist) <= 160 else gist[:157] + "..."
