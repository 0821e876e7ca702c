"""Compressed files that would expand beyond all measure: refused before their content is held.

A legitimate log shrinks to a tenth or, where it repeats itself, to a hundredth of its size.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from linrec.files.guard import reading
from linrec.types import InputError, argument

MAX_EXPANSION = 250
"""Bytes that one compressed byte may become."""

ALLOWED = 256 << 20
"""Bytes that any file may become."""

_CHUNK = 1 << 20
_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_VALUE_BYTES = 8


def check_expanded(what: str, expanded: int, size: int, limit: int = MAX_EXPANSION) -> None:
    """Refuse what has become too large for the compressed bytes it was made from."""
    if expanded > max(ALLOWED, limit * size):
        raise InputError(
            f"{what} expands to more than {limit} times its size, as a decompression bomb does; "
            f"if it is meant to, set {argument('max_expansion')} to a larger number"
        )


def check_file(path: Path, limit: int = MAX_EXPANSION, name: Path | None = None) -> None:
    """Refuse a file that Polars would expand in memory beyond the limit; it is read as a stream.

    name: what the caller calls it, if it is another path.
    """
    what = str(name or path)
    with reading(what), path.open("rb") as raw:
        start = raw.read(4)
        raw.seek(0)
        if start == _PARQUET:
            _check_parquet(what, raw, path.stat().st_size, limit)
            return
        expanded = 0
        for piece in _pieces(raw, start):
            expanded += piece
            check_expanded(what, expanded, raw.tell(), limit)


def check_parquet(what: str, content: bytes) -> None:
    """Refuse Parquet with far more values than its size allows, before they are read."""
    _check_parquet(what, BytesIO(content), len(content), MAX_EXPANSION)


def _check_parquet(what: str, file: BinaryIO, size: int, limit: int) -> None:
    metadata = pq.ParquetFile(file).metadata
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            check_expanded(what, column.num_values * _VALUE_BYTES, size, limit)
    check_expanded(what, metadata.num_rows * _VALUE_BYTES, size, limit)


def _pieces(raw: BinaryIO, start: bytes) -> Iterator[int]:
    """The sizes of the parts in which a compressed file expands; of a plain one none."""
    if start[:2] == _GZIP:
        stream = cast("BinaryIO", gzip.GzipFile(fileobj=raw))
    elif start == _ZSTD:
        stream = cast("BinaryIO", pa.CompressedInputStream(pa.PythonFile(raw), "zstd"))
    elif start[:2] in _ZLIB:
        yield from _zlib_pieces(raw)
        return
    else:
        return
    while piece := stream.read(_CHUNK):
        yield len(piece)


def _zlib_pieces(raw: BinaryIO) -> Iterator[int]:
    """Until the first error: text may begin with the same two bytes."""
    engine = zlib.decompressobj()
    try:
        while chunk := engine.unconsumed_tail or raw.read(_CHUNK):
            piece = len(engine.decompress(chunk, _CHUNK))
            yield piece
            if engine.eof:
                return
    except zlib.error:
        return
