"""What a format defines, and the helpers that several formats share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import polars as pl

from linrec.files.remote import is_file


@dataclass(frozen=True, slots=True)
class Scan:
    """A file opened but not read: only the selected columns will be."""

    frame: pl.LazyFrame
    # columns that are text because the format has no types, so numbers may be meant
    untyped: frozenset[str] = frozenset()
    # column -> the type that its header declares
    declared: dict[str, str] = field(default_factory=dict)
    unreadable: str | None = None  # column with the text of rows that are none, null elsewhere


def _no_items(path: Path) -> Path | None:  # noqa: ARG001 - the signature of Format.items_beside
    return None


@dataclass(frozen=True, slots=True)
class Format:
    """One way to store events in a file."""

    name: str
    suffixes: tuple[str, ...]  # of the file name, without .gz
    scan: Callable[[Path], Scan]
    recognises: Callable[[str], bool]  # by the first line, where the file name does not decide
    lines_before: int | None = None  # before the first row; None where rows are not lines
    names: tuple[str, ...] = ()  # whole file names, where a suffix alone would mislead
    in_folder: str = "*"  # which files of a folder hold events, where others share the suffix
    items_beside: Callable[[Path], Path | None] = _no_items
    # the same for a file with rows that cannot be read, where a format can tell them from others
    scan_readable: Callable[[Path], Scan] | None = None
    # the first line that is not a row, in words, once a file could not be read
    fault: Callable[[Path], str | None] | None = None


def beside(path: Path, name: str) -> Path | None:
    """A file of that name, plain or gzipped, in the same folder."""
    candidates = (path.with_name(name), path.with_name(f"{name}.gz"))
    return next((candidate for candidate in candidates if is_file(candidate)), None)


def scan_text(
    source: Path | BytesIO, separator: str, *, header: bool = True, quote: bool = False
) -> Scan:
    """Scan separated text with every column as text.

    Types are not inferred here, because a later row may differ from the first ones and an id such
    as 007 must stay as it is. Bytes that are not UTF-8 become a replacement character, which is an
    error in an id and harmless in a column that is not read.
    """
    frame = pl.scan_csv(
        source,
        separator=separator,
        has_header=header,
        quote_char='"' if quote else None,
        infer_schema=False,
        encoding="utf8-lossy",
        glob=False,
    )
    return Scan(frame, untyped=frozenset(frame.collect_schema().names()))
