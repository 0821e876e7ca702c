"""One JSON object per line."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from linrec.data.reading.formats.format import Format, Scan

_ROWS_TO_INFER = 1000


def scan_jsonlines(path: Path) -> Scan:
    """Scan with every plain value as text: a later line may hold a string where numbers were."""
    inferred = pl.scan_ndjson(path, infer_schema_length=_ROWS_TO_INFER).collect_schema()
    plain = {name for name, kind in inferred.items() if not kind.is_nested()}
    schema = {name: pl.String() if name in plain else kind for name, kind in inferred.items()}
    strings = {name for name, kind in inferred.items() if kind == pl.String}
    return Scan(pl.scan_ndjson(path, schema=schema), untyped=frozenset(plain - strings))


JSONLINES = Format(
    "jsonl",
    (".jsonl", ".ndjson", ".json"),
    scan_jsonlines,
    lambda line: line.lstrip().startswith("{"),
    lines_before=0,
)
