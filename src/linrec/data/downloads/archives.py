"""Downloaded archives: integrity checks and extraction."""

from __future__ import annotations

import gzip
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from linrec.types import InputError

# ValueError: invalid offsets and names; RuntimeError: encryption or compression that zipfile lacks
_BROKEN = (BadZipFile, gzip.BadGzipFile, EOFError, zlib.error, ValueError, RuntimeError)
_CHUNK = 1 << 20


def damage(archive: Path, name: str) -> str | None:
    """What is wrong with an archive, by the checksums inside it; None if nothing."""
    try:
        if name.endswith(".zip"):
            with ZipFile(archive) as file:
                broken = file.testzip()
            return f"its {broken} is damaged" if broken else None
        with gzip.open(archive) as stream:
            while stream.read(_CHUNK):
                pass
    except _BROKEN as error:
        return str(error) or "it ends too early"
    return None


def unpack(archive: Path, name: str, files: Sequence[str], folder: Path) -> None:
    """Put `files` into `folder`; an archive that is not a zip is one file and is copied."""
    if not name.endswith(".zip"):
        shutil.copyfile(archive, folder / name)
        return
    try:
        with ZipFile(archive) as file:
            members = _members(file, name)
            for wanted in files:
                if wanted not in members:
                    raise InputError(f"{name} holds no {wanted}, so it is not the official archive")
                with file.open(members[wanted]) as inside, (folder / wanted).open("wb") as outside:
                    shutil.copyfileobj(inside, outside)
    except InputError:
        raise
    except _BROKEN as error:
        raise InputError(f"cannot unpack {name} ({error}); download it again") from error


def _members(file: ZipFile, name: str) -> dict[str, ZipInfo]:
    """The files by their own names, at the top or in the one folder there.

    Only known names are written, so a path out of the folder does no harm, but an archive with one
    is not the official one.
    """
    members: dict[str, ZipInfo] = {}
    for member in file.infolist():
        path, windows = PurePosixPath(member.filename), PureWindowsPath(member.filename)
        if path.is_absolute() or windows.drive or ".." in (*path.parts, *windows.parts):
            raise InputError(
                f"{name} holds {member.filename!r}, which points out of its folder, so it is not "
                "the official archive and was not unpacked"
            )
        if not member.is_dir() and len(path.parts) <= 2:
            members[path.name] = member
    return members
