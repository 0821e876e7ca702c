"""Lines of text files that are not rows: named, or each made a row of its text without values."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

from linrec.files.text import open_bytes

UNREADABLE = "linrec: unreadable row"
"""The column with the text of what is not a row, null everywhere else."""

MAX_TEXT = 200  # characters kept of it
MAX_LINES = 50  # of one row, whose quoted fields may hold line breaks


def readable_csv(path: Path, separator: str) -> io.BytesIO:
    """Rows with more fields than the header, or with a quote that is never closed, replaced."""
    with open_bytes(path) as file:
        lines = [line.decode("utf-8", "replace") for line in file]
    header = lines[0].rstrip("\r\n")
    fields = len(next(csv.reader([header], delimiter=separator)))
    content = io.BytesIO(f"{header}{separator}{UNREADABLE}\n".encode())
    content.seek(0, io.SEEK_END)
    for text, good in _rows(lines, separator, fields):
        quoted = text.rstrip("\r\n")[:MAX_TEXT].replace('"', '""')
        row = text if good else f'{separator * fields}"{quoted}"\n'
        content.write(row.encode())
    content.seek(0)
    return content


def _rows(lines: list[str], separator: str, fields: int) -> Iterator[tuple[str, bool]]:
    """Each row, and whether it is one; a row ends at the first line where all quotes are closed."""
    start = 1
    while start < len(lines):
        for end in range(start + 1, min(start + MAX_LINES, len(lines)) + 1):
            found = _fields(lines[start:end], separator)
            if found is not None:
                yield "".join(lines[start:end]), found <= fields
                start = end
                break
        else:
            yield lines[start], False
            start += 1


def _fields(lines: list[str], separator: str) -> int | None:
    """The number of fields; None if the lines are not one whole row."""
    try:
        rows = list(csv.reader(lines, delimiter=separator, strict=True))
    except csv.Error:
        return None
    return len(rows[0]) if len(rows) == 1 else None


def readable_jsonlines(path: Path) -> io.BytesIO:
    """Lines that are not a JSON object, replaced by one that holds their text."""
    content = io.BytesIO()
    with open_bytes(path) as file:
        for line in file:
            text = line.decode("utf-8", "replace").strip()
            good = not text or _is_object(text)
            stand_in = json.dumps({UNREADABLE: text[:MAX_TEXT]}).encode() + b"\n"
            content.write(line if good else stand_in)
    content.seek(0)
    return content


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def csv_fault(path: Path, separator: str, *, quote: bool = True) -> str | None:
    """The first line with more fields than the header, or with quotes that cannot be read."""
    begun = 1  # the line of the row that is read next
    with open_bytes(path) as file:
        lines = (line.decode("utf-8", "replace") for line in file)
        reader = csv.reader(
            lines,
            delimiter=separator,
            quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
            strict=True,
        )
        try:
            fields = len(next(reader, []))
            begun = reader.line_num + 1
            for row in reader:
                if len(row) > fields:
                    return f"line {begun}: {len(row)} fields where the header has {fields}"
                begun = reader.line_num + 1
        except csv.Error as error:
            return f"line {begun} is not a row ({error})"
    return None


def jsonlines_fault(path: Path) -> str | None:
    """The first line that is not a JSON object."""
    with open_bytes(path) as file:
        for number, line in enumerate(file, 1):
            text = line.decode("utf-8", "replace").strip()
            if text and not _is_object(text):
                return f"line {number} is not a JSON object"
    return None
