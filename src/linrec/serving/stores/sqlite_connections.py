"""The file of an SQLite store: its connections, transactions, room and log."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic, sleep

from linrec.serving.stores.sqlite_files import (
    check_room,
    copy,
    private_file,
    store_error,
    structural_problems,
)
from linrec.serving.stores.sqlite_log import COPY_AFTER, LOG_PAGES, LogCopier
from linrec.serving.stores.sqlite_schema import prepare, version_warnings
from linrec.serving.stores.store import StoreError, StoreFullError
from linrec.types import InputError

WAIT_SECONDS = 5.0  # for another process's write
TURN_SECONDS = 0.0003  # between two attempts to begin one
PROBE_BYTES = 65_536
ERASE_WAIT, ERASE_ATTEMPTS = 0.5, 3  # seconds, for readers of what was deleted


class Borrowed(AbstractContextManager[sqlite3.Connection]):
    """A connection for a while, with errors as the store reports them.

    A class, because it is entered with every request and a generator takes several times as long.
    """

    def __init__(self, file: SQLiteFile) -> None:
        self._file = file

    def __enter__(self) -> sqlite3.Connection:
        try:
            self._connection = self._file._borrow()
        except sqlite3.Error as error:
            raise self._file._error(error) from error
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._file._return(self._connection)
        if isinstance(error, sqlite3.Error):
            raise self._file._error(error) from error


def _begun(connection: sqlite3.Connection, *, last: bool) -> bool:
    """False if another writer has not ended, unless this was the last attempt."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if last or "is locked" not in str(error):
            raise
        return False
    return True


class SQLiteFile:
    copy_after = COPY_AFTER  # rows written

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._free: deque[sqlite3.Connection] = deque()
        self._closed = False
        self._full = False  # the last write found no room
        self._log_pending = False  # the write-ahead log may still hold deleted rows
        self._log = LogCopier(self.path, self._borrow, self._return, self.copy_after)
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path.parent} is not a folder; choose a place for the store")
        try:
            private_file(self.path)
            connection = self._borrow()
            try:
                prepare(connection, self.path)
            finally:
                self._return(connection)
        except (sqlite3.DatabaseError, OSError) as error:
            raise InputError(
                f"{self.path} cannot be used as a store ({error}); choose another place or set it "
                "right"
            ) from None

    def _borrow(self) -> sqlite3.Connection:
        """A connection nobody else has meanwhile, so that readers do not wait for the writer."""
        try:
            return self._free.pop()
        except IndexError:
            return self._open()

    def _return(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._free.append(connection)

    def _open(self, timeout: float = WAIT_SECONDS) -> sqlite3.Connection:
        # threads hand connections on, but never share one
        opened = sqlite3.connect(
            self.path, timeout=timeout, isolation_level=None, check_same_thread=False
        )
        opened.execute("PRAGMA synchronous=FULL")
        opened.execute(f"PRAGMA wal_autocheckpoint={LOG_PAGES}")
        opened.execute("PRAGMA secure_delete=ON")  # forgotten is overwritten, not only unlinked
        return opened

    def _reading(self) -> Borrowed:
        return Borrowed(self)

    def _error(self, error: sqlite3.Error) -> StoreError:
        known = store_error(error, self.path)
        self._full = self._full or isinstance(known, StoreFullError)
        return known

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            self._begin(connection)
            before = connection.total_changes
            try:
                yield connection
                self._log.commit(connection, connection.total_changes - before)
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back by itself
                    connection.execute("ROLLBACK")
                raise

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Wait for the turn to write.

        SQLite would wait in steps of up to 100 ms, in which others write again and again; a commit
        takes about one.
        """
        until = monotonic() + WAIT_SECONDS
        connection.execute("PRAGMA busy_timeout=0")
        try:
            while not _begun(connection, last=monotonic() > until):
                sleep(TURN_SECONDS)
        finally:
            connection.execute(f"PRAGMA busy_timeout={round(WAIT_SECONDS * 1000)}")

    def vacuum(self) -> bool:
        with self._reading() as connection:
            connection.execute("VACUUM")
        return self._empty_log()

    def _empty_log(self) -> bool:
        """Whether the write-ahead log is empty; another connection's reader may prevent it."""
        with contextlib.closing(self._open(ERASE_WAIT)) as connection:
            for _ in range(ERASE_ATTEMPTS):
                (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if not busy:
                    break
        self._log_pending = bool(busy)
        return not busy

    def check(self) -> None:
        if self._log_pending:
            self._empty_log()
        if self._full:
            self._probe()
        check_room(self.path)
        with self._reading() as connection:
            connection.execute("SELECT 1 FROM users LIMIT 1").fetchone()

    def _probe(self) -> None:
        """After a write found no room: raises StoreFullError while there is none."""
        with self._writing() as connection:
            connection.execute("INSERT INTO probe VALUES (zeroblob(?))", (PROBE_BYTES,))
        with self._writing() as connection:
            connection.execute("DELETE FROM probe")
        self._full = False

    def warnings(self) -> list[str]:
        return version_warnings()

    def problems(self) -> list[str]:
        with self._reading() as connection:
            return structural_problems(connection)

    def backup(self, target: Path) -> None:
        with self._reading() as connection:
            copy(connection, target)

    def close(self) -> None:
        self._closed = True
        while self._free:
            self._free.pop().close()
