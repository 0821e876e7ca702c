"""Comma- and tab-separated values with a header line."""

from __future__ import annotations

from pathlib import Path

from linrec.data.reading.formats.format import Format, Scan, scan_text
from linrec.files.text import first_line

_SEPARATORS = (",", ";", "|")


def scan_csv(path: Path) -> Scan:
    """Commas, or the semicolons and bars that some programs call CSV."""
    header = first_line(path)
    return scan_text(path, max(_SEPARATORS, key=header.count), quote=True)


def scan_tsv(path: Path) -> Scan:
    return scan_text(path, "\t", quote=True)


CSV = Format("csv", (".csv",), scan_csv, lambda line: "," in line or ";" in line, lines_before=1)
TSV = Format("tsv", (".tsv", ".tab"), scan_tsv, lambda line: "\t" in line, lines_before=1)
