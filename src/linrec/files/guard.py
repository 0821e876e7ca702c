"""Errors of readers, Polars' own among them, as one sentence for the user."""

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
    """Turn whatever is raised while `what` is read into an InputError.

    For malformed bytes Polars raises its own errors, errors of the operating system or a panic,
    which is not an Exception.
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
        RecursionError,
        NotImplementedError,  # of pyarrow
        LookupError,
    ) as error:
        raise InputError(f"cannot read {what} ({first_line(error)}); {remedy}") from error


def first_line(error: BaseException) -> str:
    """The first line of an error message, at most 160 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    gist = lines[0] if lines else type(error).__name__
    return gist if len(gist) <= 160 else gist[:157] + "..."
