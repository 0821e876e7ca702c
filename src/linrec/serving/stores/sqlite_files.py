"""The files of an SQLite store: who may read them, room on their disk, copies, and damage."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

from linrec.serving.stores.store import StoreError, StoreFullError

MIN_FREE = 64 * 2**20  # of the disk, for a store that is ready


def private_file(path: Path) -> None:
    """Create the file if there is none, readable by its owner only; SQLite's logs follow it."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def check_room(path: Path) -> None:
    if shutil.disk_usage(path.parent).free < MIN_FREE:
        raise StoreFullError(
            f"the disk of the store {path.name} has less than {MIN_FREE >> 20} MiB left; free some "
            "space"
        )


def copy(connection: sqlite3.Connection, target: Path) -> None:
    """A consistent copy while others write."""
    private_file(target)
    with contextlib.closing(sqlite3.connect(target)) as opened:
        connection.backup(opened)
        opened.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it


def structural_problems(connection: sqlite3.Connection) -> list[str]:
    found = [row[0] for row in connection.execute("PRAGMA integrity_check(20)")]
    (orphans,) = connection.execute(
        "SELECT count(*) FROM events WHERE number NOT IN (SELECT number FROM users)"
    ).fetchone()
    problems = [f"SQLite finds: {line}" for line in found if line != "ok"]
    return problems + ([f"{orphans} events belong to no user"] if orphans else [])


def store_error(error: sqlite3.Error, path: Path) -> StoreError:
    if "is full" in str(error):  # SQLITE_FULL, whose code the module tells only from 3.11 on
        return StoreFullError(f"the disk of the store {path.name} is full; free some space")
    return StoreError(f"the store {path.name} does not answer ({error}); try again later")
