"""Drafts: files and folders under a temporary name until they are complete.

A draft is locked while its process lives, so that one left behind by a killed process is
recognised and removed when the same name is written again.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

DRAFT, OLD = ".draft", ".old"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def lock(path: Path, *, wait: bool = True) -> int | None:
    """A handle that keeps `path` locked until it is closed; None if there is no lock to get."""
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(handle)
        return None
    return handle


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process holds the lock of this folder, and hold it."""
    handle = lock(folder)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def recover(path: Path) -> None:
    """Undo an interrupted replacement of `path`, and remove drafts of processes that are gone."""
    with contextlib.suppress(OSError):
        left = _left_behind(path)
        for old in (each for each in left if each.suffix == OLD):
            if _in_use(old.with_suffix(DRAFT)):
                continue
            if os.path.lexists(path):
                remove(old)
            else:
                old.replace(path)
        for draft in (each for each in left if each.suffix == DRAFT):
            if not _in_use(draft):
                remove(draft)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder; what cannot be removed stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def swap(draft: Path, path: Path) -> None:
    """Give `draft` the name `path`; what had that name before is removed."""
    if not path.is_dir() or not any(path.iterdir()):
        draft.replace(path)
    elif exchange(draft, path):
        remove(draft)
    else:
        old = draft.with_suffix(OLD)
        path.replace(old)
        try:
            draft.replace(path)
        except BaseException:
            old.replace(path)
            raise
        remove(old)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    names = os.fsencode(one), os.fsencode(other)
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(other))


def _left_behind(path: Path) -> list[Path]:
    name = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.(draft|old)")
    return [each for each in path.parent.iterdir() if name.fullmatch(each.name)]


def _in_use(draft: Path) -> bool:
    """Whether a process that lives is writing this draft, as far as locks can tell."""
    if draft.is_symlink() or not draft.exists():
        return False
    handle = lock(draft, wait=False)
    if handle is None:
        return True
    os.close(handle)
    return False
