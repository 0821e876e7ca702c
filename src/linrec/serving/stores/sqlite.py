"""Users in one SQLite file: the embedded default.

Write-ahead log with synchronous=FULL: a commit is on the disk before it is acknowledged, so neither
a killed process nor a power cut takes it back. Several processes of one machine may share the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from linrec.serving.stores.shared import SQLiteShared
from linrec.serving.stores.sqlite_connections import SQLiteFile
from linrec.serving.stores.sqlite_schema import event_checksum, head_checksum
from linrec.serving.stores.sqlite_snapshots import put_snapshot
from linrec.serving.stores.store import (
    Change,
    DamagedError,
    Event,
    Forgotten,
    Head,
    Marks,
    StoredSnapshot,
    StoreError,
    new_version,
    user_digest,
)

MAX_VARIABLES = 500  # of one statement; old SQLite allows 999
# a deletion rewrites the file at once up to this size, because pages that were split may hold
# copies of rows that secure_delete does not reach; larger ones are rewritten by `vacuum`
MAX_REWRITE = 32 * 2**20

_INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)"


class SQLiteStore(SQLiteFile, SQLiteShared):
    shards = 1

    def heads(self, users: Sequence[str]) -> list[Head | None]:
        found: dict[str, Head] = {}
        with self._reading() as connection:
            for at in range(0, len(users), MAX_VARIABLES):
                some = users[at : at + MAX_VARIABLES]
                rows = connection.execute(
                    "SELECT number, user, users.version, users.events, users.arrived, newest, "
                    "checksum, s.version, s.events, users.arrived - s.arrived, content "
                    "FROM users LEFT JOIN snapshots s USING (number) "
                    f"WHERE user IN ({_marks(some)}) "
                    "ORDER BY s.arrived DESC, s.version = users.version DESC",
                    some,
                )
                for row in rows:
                    self._add_head(found, row[:7], row[7:])
        return [found.get(user) for user in users]

    def _add_head(self, found: dict[str, Head], head: Any, snapshot: Any) -> None:
        number, user, version, events, arrived, newest, checksum = head
        if checksum != head_checksum(number, user, version, events, arrived, newest):
            raise self._damaged()
        old = found.get(user)
        more = () if snapshot[0] is None else (StoredSnapshot(*snapshot),)
        kept = more if old is None else (*old.snapshots, *more)
        found[user] = Head(version, events, newest, kept)

    def _damaged(self) -> DamagedError:
        return DamagedError(
            f"the store {self.path.name} has damaged records of this user; see `linrec store check`"
        )

    def versions(self, users: Sequence[str]) -> list[str | None]:
        found: dict[str, str] = {}
        with self._reading() as connection:
            for at in range(0, len(users), MAX_VARIABLES):
                some = users[at : at + MAX_VARIABLES]
                found |= connection.execute(
                    f"SELECT user, version FROM users WHERE user IN ({_marks(some)})", some
                ).fetchall()
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
        rows: list[tuple[Any, ...]] = []  # of events, inserted by one statement for all users
        with self._writing() as connection:
            applied = [self._apply(connection, change, rows) for change in changes]
            connection.executemany(_INSERT_EVENT, rows)
        return applied

    def _apply(
        self, connection: sqlite3.Connection, change: Change, rows: list[tuple[Any, ...]]
    ) -> bool:
        row = connection.execute(
            "SELECT number, version, events, arrived, newest, written FROM users WHERE user = ?",
            (change.user,),
        ).fetchone()
        number, version, kept, arrived, newest, written = row or (
            None, None, 0, 0, float("-inf"), change.written
        )  # fmt: skip
        if version != change.version:
            return False
        if change.unless_forgotten and self._is_forgotten(connection, change.user):
            return False
        times = [event.time for event in change.events]
        if number is None:
            number = connection.execute(
                "INSERT INTO users VALUES (NULL, ?, '', 0, 0, 0, 0, 0)", (change.user,)
            ).lastrowid
            assert number is not None
        elif any(time < newest for time in times):  # no state is of a beginning any more
            connection.execute("DELETE FROM snapshots WHERE number = ?", (number,))
        kept, newest = kept + len(times), max([newest, *times])
        surplus = max(kept - change.keep, 0)
        events = zip(range(arrived, arrived + len(times)), change.events, strict=True)
        rows += [_row(number, arrival, event) for arrival, event in events]
        if surplus:
            connection.executemany(_INSERT_EVENT, rows)
            rows.clear()
            connection.execute(
                "DELETE FROM events WHERE (number, time, arrival) IN (SELECT number, time, arrival "
                "FROM events WHERE number = ? ORDER BY time, arrival LIMIT ?)",
                (number, surplus),
            )
        head = (change.user, change.new_version, kept - surplus, arrived + len(times), newest)
        connection.execute(
            "UPDATE users SET version = ?, events = ?, arrived = ?, newest = ?, written = ?, "
            "checksum = ? WHERE number = ?",
            (*head[1:], change.written if times else written, head_checksum(number, *head), number),
        )
        if change.snapshot is not None:
            put_snapshot(connection, change, (number, *head[1:4]))
        return True

    def history(self, user: str, newest: int | None = None) -> list[Event]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT number, time, arrival, item, id, context, events.checksum, events "
                "FROM users JOIN events USING (number) WHERE user = ? "
                "ORDER BY time DESC, arrival DESC LIMIT ?",
                (user, -1 if newest is None else newest),
            ).fetchall()
        kept = rows[0][-1] if rows else 0
        if len(rows) != (kept if newest is None else min(kept, newest)) or any(
            event_checksum(*row[:6]) != row[6] for row in rows
        ):
            raise self._damaged()
        return [
            Event(item, time, name, context)
            for _, time, _, item, name, context, *_ in reversed(rows)
        ]

    def oldest(self, user: str, count: int) -> list[float]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT time FROM events WHERE number = (SELECT number FROM users WHERE user = ?) "
                "ORDER BY time, arrival LIMIT ?",
                (user, count),
            )
            return [row[0] for row in rows]

    def forget(self, user: str) -> Forgotten:
        with self._writing() as connection:
            gone = self._delete(connection, user)
        return Forgotten(gone, pending=gone and not self._erase())

    def _delete(self, connection: sqlite3.Connection, user: str) -> bool:
        digest = (user_digest(user, self._key(connection)),)
        connection.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", digest)
        for table in ("events", "snapshots"):
            connection.execute(
                f"DELETE FROM {table} WHERE number = (SELECT number FROM users WHERE user = ?)",
                (user,),
            )
        return connection.execute("DELETE FROM users WHERE user = ?", (user,)).rowcount > 0

    def expire(self, before: float, limit: int) -> int:
        with self._writing() as connection:
            rows = connection.execute(
                "SELECT user FROM users WHERE written < ? LIMIT ?", (before, limit)
            ).fetchall()
            for (user,) in rows:
                self._delete(connection, user)
        if rows:
            self._erase()
        return len(rows)

    def forgotten(self) -> Marks:
        with self._reading() as connection:
            rows = connection.execute("SELECT digest FROM forgotten")
            return Marks(self._key(connection), frozenset(row[0] for row in rows))

    def add_forgotten(self, marks: Marks) -> bool:
        with self._writing() as connection:
            others = connection.execute("SELECT 1 FROM forgotten LIMIT 1").fetchone()
            if marks.key != self._key(connection) and others is not None:
                return False
            connection.execute("UPDATE salt SET value = ?", (marks.key,))
            rows = [(digest,) for digest in marks.digests]
            connection.executemany("INSERT OR IGNORE INTO forgotten VALUES (?)", rows)
        return True

    def _key(self, connection: sqlite3.Connection) -> bytes:
        """Of the marks; an import into an empty store may change it."""
        (key,) = connection.execute("SELECT value FROM salt").fetchone()
        found: bytes = key
        return found

    def _is_forgotten(self, connection: sqlite3.Connection, user: str) -> bool:
        digest = (user_digest(user, self._key(connection)),)
        found = connection.execute("SELECT 1 FROM forgotten WHERE digest = ?", digest).fetchone()
        return found is not None

    def replace_event(
        self, user: str, event_id: str, item: str | None, time: float | None = None
    ) -> Forgotten:
        with self._writing() as connection:
            row = connection.execute(
                "SELECT users.number, time, arrival, context FROM users JOIN events USING (number) "
                "WHERE user = ? AND id = ?",
                (user, event_id),
            ).fetchone()
            if row is None:
                return Forgotten(False, pending=False)
            number, old_time, arrival, context = row
            connection.execute(
                "DELETE FROM events WHERE number = ? AND time = ? AND arrival = ?", row[:3]
            )
            if item is not None:
                new_time = old_time if time is None else time
                new = _row(number, arrival, Event(item, new_time, event_id, context))
                connection.execute(_INSERT_EVENT, new)
            self._recount(connection, number)
        return Forgotten(True, pending=not self._erase())

    def _recount(self, connection: sqlite3.Connection, number: int) -> None:
        """The head after an event was changed: its states have to be rebuilt."""
        kept, newest = connection.execute(
            "SELECT count(*), max(time) FROM events WHERE number = ?", (number,)
        ).fetchone()
        user, arrived = connection.execute(
            "SELECT user, arrived FROM users WHERE number = ?", (number,)
        ).fetchone()
        head = (user, new_version(), kept, arrived, float("-inf") if newest is None else newest)
        connection.execute("DELETE FROM snapshots WHERE number = ?", (number,))
        connection.execute(
            "UPDATE users SET version = ?, events = ?, newest = ?, checksum = ? WHERE number = ?",
            (head[1], kept, head[4], head_checksum(number, *head), number),
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

    def users(self, prefix: str, limit: int, after: str = "") -> list[str]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT user FROM users WHERE user >= ? AND user <= ? AND user > ? "
                "ORDER BY user LIMIT ?",
                (prefix, prefix + "\U0010ffff", after, limit),
            )
            return [row[0] for row in rows]


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _row(number: int, arrival: int, event: Event) -> tuple[Any, ...]:
    row = (number, float(event.time), arrival, event.item, event.id)
    return (*row, event_checksum(*row, event.context), event.context)
