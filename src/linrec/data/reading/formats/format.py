"""What every reader offers, and the few things they all need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl


@dataclass(frozen=True, slots=True)
class Scan:
    """A file opened but not read: only the columns that are asked for will be."""

    frame: pl.LazyFrame
    # columns that hold text only because the format knows no types, so numbers may be meant
    loose: frozenset[str] = frozenset()
    # column -> the type its own header declares
    declared: dict[str, str] = field(default_factory=dict)


def _no_items(path: Path) -> Path | None:  # noqa: ARG001 - the signature of Format.items_beside
    return None


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write events down."""

    name: str
    suffixes: tuple[str, ...]  # of the file name, without .gz
    scan: Callable[[Path], Scan]
    recognises: Callable[[str], bool]  # the first line, where the file name does not tell
    lines_before: int | None = None  # before the first row; None where rows are not lines
    names: tuple[str, ...] = ()  # whole file names, where a suffix alone would mislead
    in_folder: str = "*"  # which files of a folder hold events, where others share the suffix
    items_beside: Callable[[Path], Path | None] = _no_items


def beside(path: Path, name: str) -> Path | None:
    """A file of that name, plain or gzipped, in the same folder."""
    places = (path.with_name(name), path.with_name(f"{name}.gz"))
    return next((place for place in places if place.is_file()), None)


def scan_text(path: Path, separator: str, *, header: bool = True, quote: bool = False) -> Scan:
    """Scan separated text, every column as it is written.

    Types are not inferred here: what the first rows look like says nothing about the millionth,
    and an id such as 007 must stay one. Bytes that are not UTF-8 are let through marked, so that
    a stray letter in a column nobody reads does no harm; in an id the mark is an error.
    """
    frame = pl.scan_csv(
        path,
        separator=separator,
        has_header=header,
        quote_char='"' if quote else None,
        infer_schema=False,
        encoding="utf8-lossy",
        glob=False,
    )
    return Scan(frame, loose=frozenset(frame.collect_schema().names()))
