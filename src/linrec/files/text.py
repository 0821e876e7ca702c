"""Names, bytes and first lines of plain and gzipped files."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

from linrec.files.guard import reading
from linrec.files.remote import Address, read_head

_MAX_FIRST_LINE = 1 << 20


def bare_name(path: Path) -> str:
    """The file name in lower case, without the .gz of compression."""
    return path.name.lower().removesuffix(".gz")


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """The content of a plain or gzipped file, recognised by its first bytes."""
    with path.open("rb") as raw, _expanded(raw) as file:
        yield file


@contextmanager
def _expanded(raw: BinaryIO) -> Iterator[BinaryIO]:
    zipped = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    if zipped:
        with gzip.open(raw, "rb") as file:
            yield cast(BinaryIO, file)
    else:
        yield raw


@contextmanager
def _beginning(path: Path) -> Iterator[BinaryIO]:
    """As much of the content as a first line may need; of an object no more is read."""
    if isinstance(path, Address):
        with _expanded(BytesIO(read_head(path, _MAX_FIRST_LINE))) as file:
            yield file
    else:
        with open_bytes(path) as file:
            yield file


def first_line(path: Path) -> str:
    with reading(str(path)), _beginning(path) as file:
        line = file.readline(_MAX_FIRST_LINE)
    return line.decode("utf-8-sig", errors="replace").rstrip("\r\n")


def count_lines(path: Path) -> int:
    with open_bytes(path) as file:
        return sum(1 for _ in file)
