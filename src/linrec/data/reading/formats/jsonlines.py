"""One JSON object per line."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import polars as pl

from linrec.data.reading.formats.format import Format, Scan
from linrec.data.reading.formats.tolerant import UNREADABLE, jsonlines_fault, readable_jsonlines

_ROWS_TO_INFER = 1000


def scan_jsonlines(source: Path | BytesIO) -> Scan:
    """Scan with every plain value as text: a later line may hold a string where numbers were."""
    inferred = pl.scan_ndjson(source, infer_schema_length=_ROWS_TO_INFER).collect_schema()
    plain = {name for name, kind in inferred.items() if not kind.is_nested()}
    schema = {name: pl.String() if name in plain else kind for name, kind in inferred.items()}
    strings = {name for name, kind in inferred.items() if kind == pl.String}
    return Scan(pl.scan_ndjson(source, schema=schema), untyped=frozenset(plain - strings))


def _scan_readable(path: Path) -> Scan:
    content = readable_jsonlines(path)
    scan = scan_jsonlines(content)
    schema = {**scan.frame.collect_schema(), UNREADABLE: pl.String()}  # it may first come late
    return replace(scan, frame=pl.scan_ndjson(content, schema=schema), unreadable=UNREADABLE)


JSONLINES = Format(
    "jsonl",
    (".jsonl", ".ndjson", ".json"),
    scan_jsonlines,
    lambda line: line.lstrip().startswith("{"),
    lines_before=0,
    scan_readable=_scan_readable,
    fault=jsonlines_fault,
)
