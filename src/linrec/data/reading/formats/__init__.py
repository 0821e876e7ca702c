"""The formats events are read from, and which files behind a path are read in which of them."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path
from urllib.parse import unquote

import polars as pl

from linrec.data.reading.formats.delimited import CSV, TSV
from linrec.data.reading.formats.format import Format, Scan
from linrec.data.reading.formats.gowalla import GOWALLA
from linrec.data.reading.formats.jsonlines import JSONLINES
from linrec.data.reading.formats.movielens import MOVIELENS
from linrec.data.reading.formats.movielens_100k import MOVIELENS_100K
from linrec.data.reading.formats.parquet import PARQUET
from linrec.data.reading.formats.recbole import ATOMIC
from linrec.files.guard import reading
from linrec.files.remote import Address, children, entry, is_folder, matching, place
from linrec.files.text import bare_name, first_line
from linrec.types import InputError, argument

FORMATS: dict[str, Format] = {
    form.name: form
    for form in (CSV, TSV, JSONLINES, PARQUET, ATOMIC, MOVIELENS, MOVIELENS_100K, GOWALLA)
}

_PARTITION = re.compile(r"[^=._][^=]*=.*")  # a folder such as date=2024-05-31

# from the most specific first line to the least
_BY_CONTENT = (PARQUET, JSONLINES, MOVIELENS, MOVIELENS_100K, GOWALLA, ATOMIC, TSV, CSV)

__all__ = [
    "FORMATS",
    "Format",
    "Scan",
    "find_files",
    "format_by_name",
    "list_files",
    "with_partitions",
]


def find_files(path: str | Path, format_name: str | None = None) -> tuple[Format, list[Path]]:
    """The files behind a file, a folder or a pattern, in the order of names, and their format."""
    where = place(path)
    with reading(str(where), "check the path"):
        if is_folder(where):
            files = _in_folder(where, format_name)
        elif _exists(where):
            files = [where]
        elif glob.has_magic(str(where)):
            files = _matching(where)
        else:
            raise InputError(f"{where} does not exist; check the path")
    if not files:
        raise InputError(f"no file matches {where}; check the pattern")
    return list_files(files, format_name, str(where))


def _exists(path: Path) -> bool:
    return entry(path) is not None if isinstance(path, Address) else path.exists()


def _matching(pattern: Path) -> list[Path]:
    if isinstance(pattern, Address):
        return [each.path for each in matching(pattern)]
    matches = map(Path, glob.glob(str(pattern), recursive=True))  # noqa: PTH207 - takes any path
    return sorted(match for match in matches if match.is_file())


def list_files(
    paths: Sequence[str | Path], format_name: str | None = None, name: str = "the list of files"
) -> tuple[Format, list[Path]]:
    """Given files in the given order, and their common format."""
    files = [place(path) for path in paths]
    with reading(name, "check the paths"):
        for file in files:
            _require_content(file)
    return _common_format(files, format_name, name), files


def with_partitions(scan: Scan, path: Path, names: Collection[str | None]) -> Scan:
    """The scan with those of these columns that are written as `name=value` in the path."""
    parts = dict(part.split("=", 1) for part in path.parts[:-1] if _PARTITION.fullmatch(part))
    own = scan.frame.collect_schema().names()
    new = {
        name: unquote(value) for name, value in parts.items() if name in names and name not in own
    }
    frame = scan.frame.with_columns(pl.lit(value).alias(name) for name, value in new.items())
    return replace(scan, frame=frame, untyped=scan.untyped | new.keys()) if new else scan


def format_by_name(name: str) -> Format:
    if name not in FORMATS:
        raise InputError(f"unknown format {name!r}; choose from {', '.join(FORMATS)}")
    return FORMATS[name]


def _in_folder(folder: Path, format_name: str | None) -> list[Path]:
    """The files that hold events; others, such as a README or an items file, may lie beside."""
    files = sorted(_walk(folder))
    known = {path: _format_by_suffix(path) for path in files}
    if format_name is not None:
        given = format_by_name(format_name)
        # a given format also applies to files whose suffix is unknown
        known = {path: given for path in files if known[path] in (given, None)}
    chosen = [p for p, form in known.items() if form and fnmatch(bare_name(p), form.in_folder)]
    if not chosen:
        raise InputError(
            f"the folder {folder} holds no file of a known format; "
            f"give the file itself, a pattern, or set {argument('format')}"
        )
    return chosen


def _walk(folder: Path) -> Iterator[Path]:
    """Visible files, also those in Hive-style folders such as `date=2024-05-31`."""
    inside: list[tuple[Path, bool, bool]]
    if isinstance(folder, Address):
        inside = [(each.path, each.is_folder, not each.is_folder) for each in children(folder)]
    else:
        inside = [(path, path.is_dir(), path.is_file()) for path in folder.iterdir()]
    for path, folder_there, file_there in inside:
        if folder_there and _PARTITION.fullmatch(path.name):
            yield from _walk(path)
        elif file_there and path.name[0] not in "._":
            yield path


def _common_format(files: Sequence[Path], format_name: str | None, path: str) -> Format:
    forms = {form.name: form for form in (_format_of(file, format_name) for file in files)}
    if len(forms) > 1:
        raise InputError(
            f"{path} holds files of several formats ({', '.join(sorted(forms))}); "
            "give a pattern that fits one of them, such as 'logs/*.csv'"
        )
    return next(iter(forms.values()))


def _format_of(path: Path, name: str | None) -> Format:
    """The format by its given name, else by the file name, else by the first line."""
    if name is not None:
        return format_by_name(name)
    known = _format_by_suffix(path)
    if known is not None:
        return known
    line = first_line(path)
    for form in _BY_CONTENT:
        if form.recognises(line):
            return form
    raise InputError(
        f"cannot tell the format of {path} from its name or its first line; "
        f"set {argument('format')} to one of {', '.join(FORMATS)}"
    )


def _format_by_suffix(path: Path) -> Format | None:
    name = bare_name(path)
    forms = FORMATS.values()
    named = (form for form in forms if name in form.names)
    return next(chain(named, (form for form in forms if name.endswith(form.suffixes))), None)


def _require_content(path: Path) -> None:
    if isinstance(path, Address):
        there = entry(path)
        exists, is_file = there is not None, there is not None and not there.is_folder
        size = 0 if there is None else there.size
    else:
        exists, is_file = path.exists(), path.is_file()
        size = path.stat().st_size if is_file else 0
    if not exists:
        raise InputError(f"{path} does not exist; check the path")
    if not is_file:
        raise InputError(f"{path} is not a file; give a file, a folder or a pattern")
    if size == 0:
        raise InputError(f"{path} is empty; give a file with events")
