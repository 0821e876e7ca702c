"""The formats events are read from, and how one is chosen: by name, else by content."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from linrec.data.reading.formats.delimited import CSV, TSV
from linrec.data.reading.formats.format import Format, Scan
from linrec.data.reading.formats.gowalla import GOWALLA
from linrec.data.reading.formats.jsonlines import JSONLINES
from linrec.data.reading.formats.movielens import MOVIELENS
from linrec.data.reading.formats.movielens_100k import MOVIELENS_100K
from linrec.data.reading.formats.parquet import PARQUET
from linrec.data.reading.formats.recbole import ATOMIC
from linrec.files.text import bare_name, first_line
from linrec.types import InputError

READERS: dict[str, Format] = {
    form.name: form
    for form in (CSV, TSV, JSONLINES, PARQUET, ATOMIC, MOVIELENS, MOVIELENS_100K, GOWALLA)
}

# from the most telling first line to the least
_BY_CONTENT = (PARQUET, JSONLINES, MOVIELENS, MOVIELENS_100K, GOWALLA, ATOMIC, TSV, CSV)

__all__ = ["READERS", "Format", "Scan", "format_by_name", "format_by_suffix", "format_of"]


def format_by_name(name: str) -> Format:
    if name not in READERS:
        raise InputError(f"unknown format {name!r}; choose from {', '.join(READERS)}")
    return READERS[name]


def format_by_suffix(path: Path) -> Format | None:
    name = bare_name(path)
    forms = READERS.values()
    named = (form for form in forms if name in form.names)
    return next(chain(named, (form for form in forms if name.endswith(form.suffixes))), None)


def format_of(path: Path, name: str | None = None) -> Format:
    """The format asked for, else the one the file name tells, else the one the content does."""
    if name is not None:
        return format_by_name(name)
    known = format_by_suffix(path)
    if known is not None:
        return known
    line = first_line(path)
    for form in _BY_CONTENT:
        if form.recognises(line):
            return form
    raise InputError(
        f"cannot tell the format of {path} from its name or its first line; "
        f"set --format to one of {', '.join(READERS)}"
    )
