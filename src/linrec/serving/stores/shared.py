"""Small records beside the users that all servers of a store share: rules, items switched off.

Each kind has a version that changes with every write, so that a server finds out cheaply whether
there is anything to read again.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping
from contextlib import AbstractContextManager
from threading import Lock
from typing import Any, Protocol

VERSION = "version"  # the kind under which SQLite keeps the versions of the others


class SharedRecords(Protocol):
    def shared_version(self, kind: str) -> str:
        """Of what `shared` returns; empty before the first write."""

    def shared(self, kind: str) -> dict[str, str]:
        """All records of a kind by name."""

    def change_shared(self, kind: str, changes: Mapping[str, str | None]) -> None:
        """Write records, or remove those that are None: all or nothing, and durable."""


class MemoryShared:
    def __init__(self) -> None:
        self._records: dict[str, dict[str, str]] = {}
        self._versions: dict[str, str] = {}
        self._shared_lock = Lock()

    def shared_version(self, kind: str) -> str:
        return self._versions.get(kind, "")

    def shared(self, kind: str) -> dict[str, str]:
        with self._shared_lock:
            return dict(self._records.get(kind, {}))

    def change_shared(self, kind: str, changes: Mapping[str, str | None]) -> None:
        with self._shared_lock:
            merged = {**self._records.get(kind, {}), **changes}
            self._records[kind] = {k: value for k, value in merged.items() if value is not None}
            self._versions[kind] = secrets.token_hex(8)


class SQLiteShared:
    """For a class with the connections of `SQLiteFile`."""

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        raise NotImplementedError

    def _writing(self) -> AbstractContextManager[sqlite3.Connection]:
        raise NotImplementedError

    def shared_version(self, kind: str) -> str:
        with self._reading() as connection:
            row = connection.execute(
                "SELECT value FROM shared WHERE kind = ? AND name = ?", (VERSION, kind)
            ).fetchone()
        return "" if row is None else str(row[0])

    def shared(self, kind: str) -> dict[str, str]:
        with self._reading() as connection:
            rows = connection.execute("SELECT name, value FROM shared WHERE kind = ?", (kind,))
            return dict(rows.fetchall())

    def change_shared(self, kind: str, changes: Mapping[str, str | None]) -> None:
        version = (VERSION, kind, secrets.token_hex(8))
        written = [(kind, name, value) for name, value in changes.items() if value is not None]
        removed = [(kind, name) for name, value in changes.items() if value is None]
        with self._writing() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO shared VALUES (?, ?, ?)", [*written, version]
            )
            connection.executemany("DELETE FROM shared WHERE kind = ? AND name = ?", removed)


class RedisShared:
    """For a class with the connection of `RedisStore`."""

    def _connected(self) -> AbstractContextManager[Any]:
        raise NotImplementedError

    def shared_version(self, kind: str) -> str:
        with self._connected() as connection:
            found = connection.get(_key(kind, VERSION))
        return "" if found is None else str(found.decode())

    def shared(self, kind: str) -> dict[str, str]:
        with self._connected() as connection:
            found = connection.hgetall(_key(kind, "records"))
        return {name.decode(): value.decode() for name, value in found.items()}

    def change_shared(self, kind: str, changes: Mapping[str, str | None]) -> None:
        with self._connected() as connection:
            pipe = connection.pipeline(transaction=True)
            for name, value in changes.items():
                if value is None:
                    pipe.hdel(_key(kind, "records"), name)
                else:
                    pipe.hset(_key(kind, "records"), name, value)
            pipe.set(_key(kind, VERSION), secrets.token_hex(8))
            pipe.execute()


def _key(kind: str, part: str) -> str:
    return f"linrec:shared:{kind}:{part}"
