"""RecBole's atomic files: tab-separated, each column named `name:type`, items in `.item` beside."""

from __future__ import annotations

from pathlib import Path

from linrec.data.reading.formats.format import Format, Scan, beside, scan_text
from linrec.data.reading.formats.tolerant import csv_fault
from linrec.files.text import bare_name, first_line
from linrec.types import InputError, argument

TYPES = ("token", "token_seq", "float", "float_seq")


def scan_atomic(path: Path) -> Scan:
    """Scan under the plain names; the declared types decide the kinds of the features."""
    written = first_line(path).split("\t")
    declared: dict[str, str] = {}
    for column in written:
        name, _, kind = column.strip().partition(":")
        if kind not in TYPES or not name or name in declared:
            raise InputError(
                f"{path}: the column {column.strip()!r} of the header is not `name:type` with one "
                f"of the types {', '.join(TYPES)}; correct the header or set "
                f"{argument('format', 'tsv')}"
            )
        declared[name] = kind
    scan = scan_text(path, "\t")
    names = dict(zip(scan.frame.collect_schema().names(), declared, strict=True))
    return Scan(scan.frame.rename(names), frozenset(declared), declared)


def _item_file(path: Path) -> Path | None:
    stem = path.name[: len(bare_name(path)) - len(".inter")]
    return beside(path, f"{stem}.item") if bare_name(path).endswith(".inter") else None


ATOMIC = Format(
    "atomic",
    (".inter", ".item"),
    scan_atomic,
    lambda line: ":token" in line,
    lines_before=1,
    in_folder="*.inter",
    items_beside=_item_file,
    fault=lambda path: csv_fault(path, "\t", quote=False),
)
