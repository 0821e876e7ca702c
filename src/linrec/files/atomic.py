"""Atomic writes: a reader never sees half a file or half a folder."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from linrec.files.drafts import DRAFT, lock, recover, remove, swap
from linrec.files.remote import check_local
from linrec.types import InputError, argument

DATASET_MARKER = "dataset.json"
"""The file that marks a folder as a linrec dataset, which another dataset may replace."""

_REASONS = {
    errno.ENOSPC: "the disk is full; free some space and run it again",
    errno.EDQUOT: "the disk quota is used up; free some space and run it again",
    errno.EACCES: "permission denied; choose another path or change its permissions",
    errno.EPERM: "permission denied; choose another path or change its permissions",
    errno.EROFS: "the disk is read-only; choose another path",
    errno.EEXIST: "a part of that path is a file, not a folder; choose another path",
    errno.ENOTDIR: "a part of that path is a file, not a folder; choose another path",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system during a write into one sentence with the path."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise InputError(f"cannot write {path}: {reason}") from error


def check_free(path: Path, *, overwrite: bool, marker: str = DATASET_MARKER) -> None:
    """Refuse a target that must not be replaced, before any long work."""
    check_local(path)
    recover(path)
    with writing(path):
        if not os.path.lexists(path):
            return
        is_folder, empty = path.is_dir(), path.is_dir() and not any(path.iterdir())
    if not is_folder:
        raise InputError(f"{path} exists and is not a folder; choose another path")
    if empty:
        return
    if not (path / marker).is_file():
        raise InputError(
            f"{path} exists and holds no {marker}, so it was not made by linrec and will not be "
            "replaced; choose another path"
        )
    if not overwrite:
        raise InputError(f"{path} already exists; add {argument('overwrite', True)} to replace it")


class FolderDraft:
    """An empty folder beside `path` that takes its name in one step, or is removed.

    Only a folder that holds `marker`, or nothing, is ever replaced.
    """

    def __init__(self, path: Path, *, overwrite: bool, marker: str = DATASET_MARKER) -> None:
        check_free(path, overwrite=overwrite, marker=marker)
        self.path = path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            name = tempfile.mkdtemp(prefix=f".{path.name}.", suffix=DRAFT, dir=path.parent)
            self.folder = Path(name)
            self._lock = lock(self.folder)

    def publish(self) -> None:
        """Take the name; whatever goes wrong before leaves the old folder as it was."""
        with writing(self.path):
            _flush(self.folder)
            swap(self.folder, self.path)
            self._unlock()
            _sync(self.path.parent)

    def discard(self) -> None:
        remove(self.folder)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None


@contextlib.contextmanager
def write_folder(
    path: Path, overwrite: bool = False, marker: str = DATASET_MARKER
) -> Iterator[Path]:
    """Yield an empty sibling folder that takes the name `path` once the block has succeeded.

    If the block fails the old folder stays as it was and the new one is removed.
    """
    draft = FolderDraft(path, overwrite=overwrite, marker=marker)
    try:
        with writing(path):
            yield draft.folder
        draft.publish()
    finally:
        draft.discard()


def write_bytes(path: Path, content: bytes) -> None:
    """Replace one file in a single step."""
    check_local(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        recover(path)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=DRAFT, dir=path.parent)
        draft = Path(name)
        held = lock(draft)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.chmod(0o666 & ~_umask())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
            if held is not None:
                os.close(held)


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode())


def _flush(draft: Path) -> None:
    """Flush every file to the disk before the folder gets its name."""
    for folder, _, names in os.walk(draft):
        for name in names:
            _sync(Path(folder) / name)
        _sync(Path(folder))
    draft.chmod(0o777 & ~_umask())  # mkdtemp made it private


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
