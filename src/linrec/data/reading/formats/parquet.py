"""Apache Parquet, which brings its own types and compression."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from linrec.data.reading.formats.format import Format, Scan


def scan_parquet(path: Path) -> Scan:
    return Scan(pl.scan_parquet(path, glob=False, hive_partitioning=False))


PARQUET = Format("parquet", (".parquet", ".pq"), scan_parquet, lambda line: line.startswith("PAR1"))
