"""Comma- and tab-separated values with a header line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from linrec.data.reading.formats.format import Format, Scan, scan_text
from linrec.data.reading.formats.tolerant import UNREADABLE, csv_fault, readable_csv
from linrec.files.text import first_line

_SEPARATORS = (",", ";", "|")


def scan_csv(path: Path) -> Scan:
    return scan_text(path, _separator(path), quote=True)


def scan_tsv(path: Path) -> Scan:
    return scan_text(path, "\t", quote=True)


def _separator(path: Path) -> str:
    """Commas, or the semicolons and bars that some programs call CSV."""
    return max(_SEPARATORS, key=first_line(path).count)


def _scan_readable(path: Path, separator: str) -> Scan:
    scan = scan_text(readable_csv(path, separator), separator, quote=True)
    return replace(scan, untyped=scan.untyped - {UNREADABLE}, unreadable=UNREADABLE)


CSV = Format(
    "csv",
    (".csv",),
    scan_csv,
    lambda line: "," in line or ";" in line,
    lines_before=1,
    scan_readable=lambda path: _scan_readable(path, _separator(path)),
    fault=lambda path: csv_fault(path, _separator(path)),
)
TSV = Format(
    "tsv",
    (".tsv", ".tab"),
    scan_tsv,
    lambda line: "\t" in line,
    lines_before=1,
    scan_readable=lambda path: _scan_readable(path, "\t"),
    fault=lambda path: csv_fault(path, "\t"),
)
