"""The write-ahead log is copied in two steps, and started again after them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from linrec.serving.stores import Change, Event, SQLiteStore, sqlite_log
from linrec.serving.stores.sqlite_log import Writeback

PAGE = 4_096


class OftenCopied(SQLiteStore):
    copy_after = 20  # rows


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SQLiteStore]:
    monkeypatch.setattr(sqlite_log, "WRITE_SECONDS", 0.0)
    made = OftenCopied(tmp_path / "users.sqlite")
    yield made
    made.close()


def log_pages(store: SQLiteStore) -> int:
    """As many as it had when it was longest."""
    return (store.path.parent / f"{store.path.name}-wal").stat().st_size // PAGE


def write(store: SQLiteStore, users: range) -> None:
    for number in users:
        events = [Event("item", float(at), f"e{at}") for at in range(5)]
        assert store.commit([Change(f"user-{number}", None, events, b"m" * 9_000, 100)]) == [True]


def test_the_log_is_started_again(store: SQLiteStore) -> None:
    write(store, range(20))
    before = log_pages(store)
    write(store, range(20, 200))
    assert log_pages(store) < 2 * before
    assert len(store.users("", 1000)) == 200
    assert store.problems() == []


def test_a_reader_postpones_the_second_step(store: SQLiteStore) -> None:
    write(store, range(20))
    before = log_pages(store)
    with store._reading() as connection:
        connection.execute("BEGIN")
        count = connection.execute("SELECT count(*) FROM users").fetchone()
        write(store, range(20, 200))
        assert log_pages(store) > 4 * before
        assert connection.execute("SELECT count(*) FROM users").fetchone() == count
        connection.execute("ROLLBACK")
    longest = log_pages(store)
    write(store, range(200, 400))
    assert log_pages(store) < longest + before
    assert store.problems() == []


def test_a_failing_copy_fails_no_commit(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "COPY", "PRAGMA wal_checkpoint(PASSIVE); no sql")
    write(store, range(20))
    monkeypatch.undo()
    assert len(store.users("", 1000)) == 20


def test_without_a_reader_the_second_step_copies_all(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, range(20))
    before = log_pages(store)

    def none() -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(store._log, "_borrow", none)
    write(store, range(20, 200))
    assert log_pages(store) < 2 * before


def test_a_commit_that_fails_is_followed_by_others(store: SQLiteStore) -> None:
    class Failing:
        def execute(self, statement: str) -> None:
            raise sqlite3.OperationalError(f"{statement}: database or disk is full")

    for _ in range(3):
        with pytest.raises(sqlite3.OperationalError):
            store._log.commit(Failing(), 1_000)  # type: ignore[arg-type]
    write(store, range(20))
    before = log_pages(store)
    write(store, range(20, 200))
    assert log_pages(store) < 2 * before


def test_the_first_step_leaves_out_the_newest_commit(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "WRITE_SECONDS", 60.0)  # no second step
    found: list[tuple[int, ...]] = []
    copied = sqlite_log._copy
    monkeypatch.setattr(sqlite_log, "_copy", lambda c: found.append(log_state(c)) or copied(c))
    write(store, range(10))
    ((pages, done),) = found
    assert 0 < done < pages


def log_state(connection: sqlite3.Connection) -> tuple[int, int]:
    _, pages, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return pages, done


def test_the_system_is_asked_by_a_file_that_sqlite_has_open(store: SQLiteStore) -> None:
    asking = Writeback(store.path)
    found = asking._descriptor()
    assert found is not None
    assert os.path.samestat(os.fstat(found), store.path.stat())
    asking.start()
    gone = Writeback(store.path.with_name("gone"))
    gone.start()
    assert gone._descriptor() is None


def test_the_first_step_writes_the_file(store: SQLiteStore) -> None:
    write(store, range(10))
    assert b"user-0" in store.path.read_bytes()
