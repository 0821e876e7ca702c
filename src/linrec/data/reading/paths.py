"""The files behind what the caller gave: one file, a folder or a pattern."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from linrec.data.reading.formats import Format, format_by_name, format_by_suffix, format_of
from linrec.files.guard import reading
from linrec.files.text import bare_name
from linrec.types import InputError


def find_files(where: str | Path, format_name: str | None = None) -> tuple[Format, list[Path]]:
    """All files to be read, in the order of their names, and their common format."""
    place = Path(where)
    with reading(str(where), "check the path"):
        if place.is_dir():
            return _of_folder(place, format_name)
        if place.exists():
            files = [place]
        elif glob.has_magic(str(where)):
            found = map(Path, glob.glob(str(where), recursive=True))  # noqa: PTH207 - takes any path
            files = sorted(path for path in found if path.is_file())
        else:
            raise InputError(f"{where} does not exist; check the path")
    if not files:
        raise InputError(f"no file matches {where}; check the pattern")
    for path in files:
        _require_content(path)
    return _common(files, format_name, str(where)), files


def _of_folder(folder: Path, format_name: str | None) -> tuple[Format, list[Path]]:
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.name[0] not in "._")
    known = {path: format_by_suffix(path) for path in files}
    if format_name is not None:
        asked = format_by_name(format_name)
        # a format asked for may be in files whose names do not tell it
        known = {path: asked for path in files if known[path] in (asked, None)}
    chosen = [p for p, form in known.items() if form and fnmatch(bare_name(p), form.in_folder)]
    if not chosen:
        raise InputError(
            f"the folder {folder} holds no file of a known format; "
            "give the file itself, a pattern, or set --format"
        )
    for path in chosen:
        _require_content(path)
    return _common(chosen, format_name, str(folder)), chosen


def _common(files: Sequence[Path], format_name: str | None, where: str) -> Format:
    forms = {form.name: form for form in (format_of(path, format_name) for path in files)}
    if len(forms) > 1:
        raise InputError(
            f"{where} holds files of several formats ({', '.join(sorted(forms))}); "
            "give a pattern that fits one of them, such as 'logs/*.csv'"
        )
    return next(iter(forms.values()))


def _require_content(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path} is not a file; give a file, a folder or a pattern")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty; give a file with events")
