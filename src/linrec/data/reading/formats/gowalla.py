"""SNAP's Gowalla check-ins: user, ISO time, latitude, longitude, place; tabs, no header."""

from __future__ import annotations

import re
from pathlib import Path

from linrec.data.reading.formats.format import Format, Scan, scan_text
from linrec.files.text import first_line
from linrec.types import InputError, argument

COLUMNS = ("user", "time", "latitude", "longitude", "place")
_LINE = re.compile(r"[^\t]+\t\d{4}-\d\d-\d\d[T ][^\t]*\t[^\t]*\t[^\t]*\t[^\t]+")


def scan_gowalla(path: Path) -> Scan:
    fields = first_line(path).count("\t") + 1
    if fields != len(COLUMNS):
        raise InputError(
            f"{path}: the first line has {fields} fields between tabs where check-ins have "
            f"{len(COLUMNS)} ({', '.join(COLUMNS)}); set "
            f"{argument('format')} if it is another kind of file"
        )
    scan = scan_text(path, "\t", header=False)
    names = dict(zip(scan.frame.collect_schema().names(), COLUMNS, strict=True))
    return Scan(scan.frame.rename(names), untyped=frozenset(COLUMNS))


GOWALLA = Format(
    "gowalla", (), scan_gowalla, lambda line: bool(_LINE.fullmatch(line)), lines_before=0
)
