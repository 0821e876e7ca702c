"""Copying the write-ahead log into the file, so that no commit waits long for the disk.

By itself SQLite copies a log of so many pages after the commit that reached them, and syncs the
file, before that commit returns. The copying takes a millisecond or two; it is the sync of a
thousand pages that takes long. Hence two steps. The first copies all but the newest commit, which
a reader of the state before it makes SQLite leave out, and SQLite does not sync a copy that is not
complete; the system is asked to write these pages meanwhile. The second, with a commit soon after,
copies the few pages since then, and syncs. As ever, SQLite starts the log again only after a
complete copy that it has synced itself: what a commit promises does not depend on the first step.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from time import monotonic

# rows written, by which time the log has some 2,000 pages: pages of users who come back meanwhile
# are copied once, and the more there are, the longer a commit or two take
COPY_AFTER = 1_000
LOG_PAGES = 8_000  # at which SQLite copies by itself: large commits, or many processes
WRITE_SECONDS = 0.02  # between the two steps, and two attempts at the second
COPY = "PRAGMA wal_checkpoint(PASSIVE)"  # as much as readers allow, without waiting for anybody
SYNC_FILE_RANGE_WRITE = 2  # Linux: begin to write, and do not wait


class LogCopier:
    """Of one file: commits through it take the steps when it is time."""

    def __init__(
        self,
        path: Path,
        borrow: Callable[[], sqlite3.Connection],
        give_back: Callable[[sqlite3.Connection], None],
        after: int = COPY_AFTER,
    ) -> None:
        self._borrow, self._give_back, self._after = borrow, give_back, after
        self._writeback = Writeback(path)
        self._rows = 0  # since the last step
        self._second_at: float | None = None  # if the first one has been taken

    def commit(self, connection: sqlite3.Connection, rows: int) -> None:
        """rows: written in this transaction."""
        self._rows += rows
        if self._second_at is None and self._rows >= self._after:
            step = self._first
        elif self._second_at is not None and monotonic() >= self._second_at:
            step = self._second
        else:
            connection.execute("COMMIT")
            return
        # before others have their turn to write: no two threads copy at the same time
        self._rows, self._second_at = 0, math.inf
        complete = False
        try:
            complete = step(connection)
        finally:
            self._second_at = None if complete else monotonic() + WRITE_SECONDS

    def _first(self, connection: sqlite3.Connection) -> bool:
        with self._reader() as reading:
            connection.execute("COMMIT")
            if reading:
                _copy(connection)
                Thread(target=self._writeback.start, name="writeback", daemon=True).start()
        return False

    def _second(self, connection: sqlite3.Connection) -> bool:
        connection.execute("COMMIT")
        return _copy(connection)  # not complete while somebody reads an older state

    @contextlib.contextmanager
    def _reader(self) -> Iterator[bool]:
        """Of the state before the commit; False if there can be none now, which fails nothing."""
        connection, reading = None, False
        with contextlib.suppress(sqlite3.Error):
            connection = self._borrow()
            connection.execute("BEGIN")
            connection.execute("SELECT 1 FROM users LIMIT 1").fetchone()
            reading = True
        try:
            yield reading
        finally:
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                self._give_back(connection)


def _copy(connection: sqlite3.Connection) -> bool:
    """Whether the whole log is in the file. The commit is safe in any case, as when it is not."""
    try:
        busy, pages, copied = connection.execute(COPY).fetchone()
    except sqlite3.Error:  # a full disk, for example: SQLite's own copying says nothing, either
        return False
    return not busy and pages == copied


class Writeback:
    """Asks the system to write a file's changed pages, and does not wait: Linux's call for that.

    It reports no errors, which SQLite's own sync therefore still sees. It needs an open file, and
    that must be one of SQLite's, because to close another one would end the locks of them all.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._last = path, -1
        self._call = _sync_file_range()

    def start(self) -> None:
        opened = None if self._call is None else self._descriptor()
        if self._call is not None and opened is not None:
            self._call(opened, 0, 0, SYNC_FILE_RANGE_WRITE)

    def _descriptor(self) -> int | None:
        with contextlib.suppress(OSError):
            wanted = self._path.stat()
            numbers = (int(entry.name) for entry in Path("/proc/self/fd").iterdir())
            for number in (self._last, *numbers):
                with contextlib.suppress(OSError):  # closed meanwhile
                    if os.path.samestat(os.fstat(number), wanted):
                        self._last = number
                        return number
        return None


def _sync_file_range() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if found is not None:
        found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]  # type: ignore[attr-defined]
    return found
