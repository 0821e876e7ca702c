"""Downloaded archives: integrity checks and extraction."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import shutil
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO
from zipfile import BadZipFile, ZipFile, ZipInfo

from linrec.files.expansion import MAX_EXPANSION, check_expanded
from linrec.types import InputError

# ValueError: invalid offsets and names; RuntimeError: encryption or compression that zipfile lacks;
# struct.error: a damaged table of contents
_BROKEN = (
    BadZipFile, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, struct.error, ValueError,
    RuntimeError,
)  # fmt: skip
_CHUNK = 1 << 20


def damage(archive: Path, name: str, max_expansion: int = MAX_EXPANSION) -> str | None:
    """What is wrong with an archive, by the checksums inside it; None if nothing."""
    limit = _Limit(archive, name, max_expansion)
    try:
        with _broken_streams():
            if name.endswith(".zip"):
                return _damaged_member(archive, limit)
            with gzip.open(archive) as stream:
                limit.read_all(stream)
    except InputError:
        raise
    except _BROKEN as error:
        return str(error) or "it ends too early"
    return None


def _damaged_member(archive: Path, limit: _Limit) -> str | None:
    with ZipFile(archive) as file:
        for member in file.infolist():
            if _is_damaged(file, member, limit):
                return f"its {member.filename} is damaged"
    return None


def _is_damaged(file: ZipFile, member: ZipInfo, limit: _Limit) -> bool:
    try:
        with file.open(member) as inside:
            limit.read_all(inside)
    except BadZipFile:
        return True
    return False


def unpack(
    archive: Path,
    name: str,
    files: Sequence[str],
    folder: Path,
    max_expansion: int = MAX_EXPANSION,
) -> None:
    """Put `files` into `folder`; an archive that is not a zip is one file and is copied."""
    if not name.endswith(".zip"):
        shutil.copyfile(archive, folder / name)
        return
    limit = _Limit(archive, name, max_expansion)
    try:
        with _broken_streams(), ZipFile(archive) as file:
            members = _members(file, name)
            for wanted in files:
                if wanted not in members:
                    raise InputError(f"{name} holds no {wanted}, so it is not the official archive")
                with file.open(members[wanted]) as inside, (folder / wanted).open("wb") as outside:
                    shutil.copyfileobj(limit.counted(inside), outside)
    except InputError:
        raise
    except _BROKEN as error:
        raise InputError(f"cannot unpack {name} ({error}); download it again") from error


class _Limit:
    """Counts what an archive expands to, all its files together."""

    def __init__(self, archive: Path, name: str, max_expansion: int) -> None:
        self.name, self.size, self.limit = name, archive.stat().st_size, max_expansion
        self.expanded = 0

    def counted(self, inside: IO[bytes]) -> _Counted:
        return _Counted(inside, self)

    def read_all(self, inside: IO[bytes] | gzip.GzipFile) -> None:
        while _Counted(inside, self).read(_CHUNK):
            pass


class _Counted:
    """A file that is refused once its archive has expanded beyond the limit."""

    def __init__(self, inside: IO[bytes] | gzip.GzipFile, limit: _Limit) -> None:
        self.inside, self.limit = inside, limit

    def read(self, size: int = _CHUNK) -> bytes:
        chunk = self.inside.read(size)
        limit = self.limit
        limit.expanded += len(chunk)
        check_expanded(limit.name, limit.expanded, limit.size, limit.limit)
        return chunk


@contextlib.contextmanager
def _broken_streams() -> Iterator[None]:
    """bz2 reports damage as an OSError without a number, which no error of the system is."""
    try:
        yield
    except OSError as error:
        if error.errno is None and not isinstance(error, _BROKEN):
            raise ValueError(str(error)) from error
        raise


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
