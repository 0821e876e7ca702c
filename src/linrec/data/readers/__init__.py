"""The formats events are read from, and how one is chosen: by name, else by content."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from linrec.data.readers.delimited import CSV, TSV
from linrec.data.readers.format import Format, Scan
from linrec.data.readers.gowalla import GOWALLA
from linrec.data.readers.jsonlines import JSONLINES
from linrec.data.readers.movielens import MOVIELENS
from linrec.data.readers.movielens_100k import MOVIELENS_100K
from linrec.data.readers.parquet import PARQUET
from linrec.data.readers.recbole import ATOMIC
from linrec.data.textfiles import bare_name, first_line
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
