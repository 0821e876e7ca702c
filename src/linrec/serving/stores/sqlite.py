"""Users in one SQLite file: the embedded default.

Write-ahead log with synchronous=FULL: a commit is on the disk before it is acknowledged, so neither
a killed process nor a power cut takes it back. Several processes of one machine may share the file.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from linrec.serving.stores.store import (
    Change,
    Event,
    Forgotten,
    Head,
    StoreError,
    StoreFullError,
    new_version,
)
from linrec.types import InputError

FORMAT = 1
WAIT_SECONDS = 5.0  # for another process's write
MAX_VARIABLES = 500  # of one statement; old SQLite allows 999
PROBE_BYTES = 65_536
ERASE_WAIT, ERASE_ATTEMPTS = 0.5, 3  # seconds, for readers of what was deleted
# a deletion rewrites the file at once up to this size, because pages that were split may hold
# copies of rows that secure_delete does not reach; larger ones are rewritten by `vacuum`
MAX_REWRITE = 32 * 2**20

_TABLES = """
CREATE TABLE IF NOT EXISTS users (
    number INTEGER PRIMARY KEY,
    user TEXT NOT NULL UNIQUE,
    version TEXT NOT NULL,
    events INTEGER NOT NULL,
    arrived INTEGER NOT NULL,
    newest REAL NOT NULL,
    snapshot BLOB
);
CREATE TABLE IF NOT EXISTS events (
    number INTEGER NOT NULL,
    time REAL NOT NULL,
    arrival INTEGER NOT NULL,
    item TEXT NOT NULL,
    id TEXT,
    PRIMARY KEY (number, time, arrival)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS ids ON events (number, id) WHERE id IS NOT NULL;
CREATE TABLE IF NOT EXISTS probe (content BLOB);
CREATE TABLE IF NOT EXISTS forgotten (digest BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS salt (number INTEGER PRIMARY KEY CHECK (number = 1), value BLOB);
"""


class SQLiteStore:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._free: deque[sqlite3.Connection] = deque()
        self._closed = False
        self._full = False  # the last write found no room
        self._log_pending = False  # the write-ahead log may still hold deleted rows
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path.parent} is not a folder; choose a place for the store")
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{self.path} cannot be used as a store ({error}); choose another place or set it "
                "right"
            ) from None

    def _prepare(self) -> None:
        with self._borrowed() as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            if found not in (0, FORMAT):
                raise InputError(
                    f"{self.path} has store format {found} and this linrec reads {FORMAT}; "
                    "choose another place"
                )
            connection.executescript(
                f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version={FORMAT}; COMMIT"
            )
            fresh = (secrets.token_bytes(16),)
            connection.execute("INSERT OR IGNORE INTO salt VALUES (1, ?)", fresh)
            (self._salt,) = connection.execute("SELECT value FROM salt").fetchone()

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        """A connection nobody else has meanwhile, so that readers do not wait for the writer."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._open()
        try:
            yield connection
        finally:
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
        opened.execute("PRAGMA secure_delete=ON")  # forgotten is overwritten, not only unlinked
        return opened

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._borrowed() as connection:
                yield connection
        except sqlite3.Error as error:
            known = _store_error(error, self.path)
            self._full = self._full or isinstance(known, StoreFullError)
            raise known from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back by itself
                    connection.execute("ROLLBACK")
                raise

    def heads(self, users: Sequence[str]) -> list[Head | None]:
        found: dict[str, Head] = {}
        with self._reading() as connection:
            for at in range(0, len(users), MAX_VARIABLES):
                some = users[at : at + MAX_VARIABLES]
                rows = connection.execute(
                    "SELECT user, version, events, newest, snapshot FROM users "
                    f"WHERE user IN ({_marks(some)})",
                    some,
                )
                found.update((user, Head(*head)) for user, *head in rows)
        return [found.get(user) for user in users]

    def known_ids(self, users: Sequence[tuple[str, Sequence[str]]]) -> list[set[str]]:
        with self._reading() as connection:
            return [self._known(connection, user, ids) for user, ids in users]

    def _known(self, connection: sqlite3.Connection, user: str, ids: Sequence[str]) -> set[str]:
        known: set[str] = set()
        for at in range(0, len(ids), MAX_VARIABLES):
            some = ids[at : at + MAX_VARIABLES]
            rows = connection.execute(
                "SELECT id FROM events WHERE number = (SELECT number FROM users WHERE user = ?) "
                f"AND id IN ({_marks(some)})",
                (user, *some),
            )
            known.update(row[0] for row in rows)
        return known

    def commit(self, changes: Sequence[Change]) -> list[bool]:
        with self._writing() as connection:
            return [self._apply(connection, change) for change in changes]

    def _apply(self, connection: sqlite3.Connection, change: Change) -> bool:
        row = connection.execute(
            "SELECT number, version, events, arrived, newest FROM users WHERE user = ?",
            (change.user,),
        ).fetchone()
        number, version, kept, arrived, newest = row or (None, None, 0, 0, float("-inf"))
        if version != change.version:
            return False
        if change.unless_forgotten and self._is_forgotten(connection, change.user):
            return False
        times = [event.time for event in change.events]
        kept, newest = kept + len(times), max([newest, *times])
        surplus = max(kept - change.keep, 0)
        head = (change.new_version, kept - surplus, arrived + len(times), newest, change.snapshot)
        if number is None:
            number = connection.execute(
                "INSERT INTO users (version, events, arrived, newest, snapshot, user) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (*head, change.user),
            ).lastrowid
        else:
            connection.execute(
                "UPDATE users SET version = ?, events = ?, arrived = ?, newest = ?, snapshot = ? "
                "WHERE number = ?",
                (*head, number),
            )
        connection.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
            [
                (number, event.time, arrived + place, event.item, event.id)
                for place, event in enumerate(change.events)
            ],
        )
        if surplus:
            connection.execute(
                "DELETE FROM events WHERE (number, time, arrival) IN (SELECT number, time, arrival "
                "FROM events WHERE number = ? ORDER BY time, arrival LIMIT ?)",
                (number, surplus),
            )
        return True

    def history(self, user: str, newest: int | None = None) -> list[Event]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT item, time, id FROM events "
                "WHERE number = (SELECT number FROM users WHERE user = ?) "
                "ORDER BY time DESC, arrival DESC LIMIT ?",
                (user, -1 if newest is None else newest),
            ).fetchall()
        return [Event(*row) for row in reversed(rows)]

    def forget(self, user: str) -> Forgotten:
        with self._writing() as connection:
            digest = (self._digest(user),)
            connection.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", digest)
            connection.execute(
                "DELETE FROM events WHERE number = (SELECT number FROM users WHERE user = ?)",
                (user,),
            )
            gone = connection.execute("DELETE FROM users WHERE user = ?", (user,)).rowcount
        return Forgotten(gone > 0, pending=gone > 0 and not self._erase())

    def _digest(self, user: str) -> bytes:
        """Of a forgotten user, with a key of this store, so that the id itself is not kept."""
        return blake2b(user.encode(), key=self._salt, digest_size=16).digest()

    def _is_forgotten(self, connection: sqlite3.Connection, user: str) -> bool:
        digest = (self._digest(user),)
        found = connection.execute("SELECT 1 FROM forgotten WHERE digest = ?", digest).fetchone()
        return found is not None

    def replace_event(
        self, user: str, event_id: str, item: str | None, time: float | None = None
    ) -> Forgotten:
        with self._writing() as connection:
            row = connection.execute(
                "SELECT users.number, time, arrival FROM users JOIN events USING (number) "
                "WHERE user = ? AND id = ?",
                (user, event_id),
            ).fetchone()
            if row is None:
                return Forgotten(False, pending=False)
            number, old_time, arrival = row
            connection.execute(
                "DELETE FROM events WHERE number = ? AND time = ? AND arrival = ?", row
            )
            if item is not None:
                new_time = old_time if time is None else time
                new = (number, new_time, arrival, item, event_id)
                connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", new)
            self._recount(connection, number)
        return Forgotten(True, pending=not self._erase())

    def _recount(self, connection: sqlite3.Connection, number: int) -> None:
        """The head after an event was changed: its state has to be rebuilt."""
        kept, newest = connection.execute(
            "SELECT count(*), max(time) FROM events WHERE number = ?", (number,)
        ).fetchone()
        connection.execute(
            "UPDATE users SET version = ?, events = ?, newest = ?, snapshot = NULL "
            "WHERE number = ?",
            (new_version(), kept, float("-inf") if newest is None else newest, number),
        )

    def _erase(self) -> bool:
        """Overwrite what deleted rows left in pages and in the log; False if some may remain."""
        small = self.path.stat().st_size <= MAX_REWRITE
        try:
            emptied = self.vacuum() if small else self._empty_log()
            return emptied and small
        except StoreError:  # what was deleted is deleted; its bytes wait for the next attempt
            self._log_pending = True
            return False

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

    def users(self, prefix: str, limit: int) -> list[str]:
        after = prefix + "\U0010ffff"
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT user FROM users WHERE user >= ? AND user <= ? ORDER BY user LIMIT ?",
                (prefix, after, limit),
            )
            return [row[0] for row in rows]

    def check(self) -> None:
        if self._log_pending:
            self._empty_log()
        if self._full:
            self._probe()
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
        return []

    def close(self) -> None:
        self._closed = True
        while self._free:
            self._free.pop().close()


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _store_error(error: sqlite3.Error, path: Path) -> StoreError:
    if "is full" in str(error):  # SQLITE_FULL, whose code the module tells only from 3.11 on
        return StoreFullError(f"the disk of the store {path.name} is full; free some space")
    return StoreError(f"the store {path.name} does not answer ({error}); try again later")
