"""The tables of an SQLite store, how older formats become this one, and the checksums of rows."""

from __future__ import annotations

import secrets
import sqlite3
import zlib
from pathlib import Path
from time import time

from linrec.types import InputError

FORMAT = 3
READABLE = (0, 1, 2, FORMAT)  # 0: a new file

_TABLES = """
CREATE TABLE IF NOT EXISTS users (
    number INTEGER PRIMARY KEY,
    user TEXT NOT NULL UNIQUE,
    version TEXT NOT NULL,
    events INTEGER NOT NULL,
    arrived INTEGER NOT NULL,
    newest REAL NOT NULL,
    written REAL NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS events (
    number INTEGER NOT NULL,
    time REAL NOT NULL,
    arrival INTEGER NOT NULL,
    item TEXT NOT NULL,
    id TEXT,
    checksum INTEGER NOT NULL,
    context TEXT,
    PRIMARY KEY (number, time, arrival)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS ids ON events (number, id) WHERE id IS NOT NULL;
CREATE INDEX IF NOT EXISTS idle ON users (written);
CREATE TABLE IF NOT EXISTS snapshots (
    number INTEGER NOT NULL,
    model BLOB NOT NULL,
    version TEXT NOT NULL,
    events INTEGER NOT NULL,
    arrived INTEGER NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (number, model)
);
CREATE TABLE IF NOT EXISTS probe (content BLOB);
CREATE TABLE IF NOT EXISTS shared (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgotten (digest BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS salt (number INTEGER PRIMARY KEY CHECK (number = 1), value BLOB);
"""

# format 1: one snapshot, of the newest version, as a column of users; no checksums
_FROM_1 = """
DROP INDEX ids;
ALTER TABLE users RENAME TO old_users;
ALTER TABLE events RENAME TO old_events;
{tables}
INSERT INTO users SELECT number, user, version, events, arrived, newest, {now},
    head_checksum(number, user, version, events, arrived, newest) FROM old_users;
INSERT INTO events (number, time, arrival, item, id, checksum)
    SELECT number, time, arrival, item, id, event_checksum(number, time, arrival, item, id)
    FROM old_events;
INSERT INTO snapshots SELECT number, substr(snapshot, 1, 16), version, events, arrived, snapshot
    FROM old_users WHERE snapshot IS NOT NULL;
DROP TABLE old_users;
DROP TABLE old_events;
"""

# format 2: events had no context
_FROM_2 = "{tables}; ALTER TABLE events ADD COLUMN context TEXT"

# SQLite's own list: https://www.sqlite.org/wal.html#walresetbug
_WAL_RESET_FIXED = ((3, 44, 6), (3, 50, 7), (3, 51, 3))


def event_checksum(
    number: int,
    time: float,
    arrival: int,
    item: str,
    name: str | None,
    context: str | None = None,
) -> int:
    parts = (number, float(time), arrival, item, name)
    # without context as before there was any
    return zlib.crc32(repr(parts if context is None else (*parts, context)).encode())


def head_checksum(
    number: int, user: str, version: str, events: int, arrived: int, newest: float
) -> int:
    return zlib.crc32(repr((number, user, version, events, arrived, float(newest))).encode())


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make or upgrade the tables, and the key of the marks of forgotten users."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.create_function("event_checksum", 5, event_checksum, deterministic=True)
    connection.create_function("head_checksum", 6, head_checksum, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")  # of two servers that start, one upgrades
    try:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found not in READABLE:
            raise InputError(
                f"{path} has store format {found} and this linrec reads {FORMAT}; choose another "
                "place"
            )
        upgrade = {1: _FROM_1, 2: _FROM_2}.get(found, "{tables}")
        script = upgrade.format(tables=_TABLES, now=time())
        for statement in script.split(";"):  # executescript would commit first
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={FORMAT}")
        fresh = (secrets.token_bytes(16),)
        connection.execute("INSERT OR IGNORE INTO salt VALUES (1, ?)", fresh)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def version_warnings(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> list[str]:
    """What is known to be wrong with this SQLite's write-ahead log."""
    fixed = any(version >= fix and version[:2] == fix[:2] for fix in _WAL_RESET_FIXED)
    if version < (3, 7, 0) or fixed or version >= max(_WAL_RESET_FIXED):
        return []
    name = ".".join(map(str, version))
    return [
        f"SQLite {name} can damage a store that two connections write and checkpoint in the same "
        "moment; use 3.51.3 or newer, or its fixes in 3.50.7 and 3.44.6"
    ]
