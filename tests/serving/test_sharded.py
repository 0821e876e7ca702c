"""A store of several SQLite files: what the tests of all stores (`place`) do not show."""

from __future__ import annotations

import json
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from linrec.serving import Engine, NewEvent, open_store
from linrec.serving.appending import Append
from linrec.serving.maintenance import backup, check_store, export_users, import_users
from linrec.serving.stores import Change, Event, ShardedStore
from linrec.serving.stores.sharded import MANIFEST, create_shards, shard_of
from linrec.types import InputError
from tests.serving.cases import assert_rebuilt_is_the_same, events
from tests.serving.test_maintenance import content, fill, linrec

MakeEngine = Callable[..., Engine]
USERS = [f"u{number}" for number in range(20)]


def test_where_a_user_is_never_changes() -> None:
    assert [shard_of(user, 4) for user in ("ann", "bob", "é", "7")] == [3, 0, 2, 2]


def test_users_are_divided_and_files_private(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "users"), 4)
    assert isinstance(store, ShardedStore)
    assert store.shards == 4
    store.commit([Change(user, None, [Event("i", 1.0)], None, 9) for user in USERS])
    store.close()
    for number in range(4):
        file = tmp_path / "users" / f"users-{number:04d}.sqlite"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        with closing(sqlite3.connect(file)) as behind:
            found = {row[0] for row in behind.execute("SELECT user FROM users")}
        assert found == {user for user in USERS if shard_of(user, 4) == number}
    again = open_store(str(tmp_path / "users"))
    assert again.users("u1", 3, "u1") == ["u10", "u11", "u12"]
    again.close()


def test_two_that_create_it_agree(tmp_path: Path) -> None:
    opened = []
    place = str(tmp_path / "users")
    threads = [
        threading.Thread(target=lambda: opened.append(open_store(place, 3))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({store.forgotten().key for store in opened}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["users"]
    for store in opened:
        store.close()


def test_places_that_do_not_fit(tmp_path: Path) -> None:
    open_store(str(tmp_path / "one.sqlite")).close()
    create_shards(tmp_path / "users", 2)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("mine")
    for place, shards, message in [
        ("one.sqlite", 2, "is one file"),
        ("users", 3, "has 2 files"),
        ("notes", None, "is a folder and not a store"),
        ("notes", 2, "is a folder and not a store"),
        ("no/such/users", 2, "is not a folder"),
    ]:
        with pytest.raises(InputError, match=message):
            open_store(str(tmp_path / place), shards)
    with pytest.raises(InputError, match="leave it out"):
        open_store("memory", 2)
    assert [path.name for path in notes.iterdir()] == ["a.txt"]
    (tmp_path / "users" / "users-0001.sqlite").unlink()
    with pytest.raises(InputError, match=r"users-0001\.sqlite is missing"):
        open_store(str(tmp_path / "users"))
    (tmp_path / "users" / MANIFEST).write_text(json.dumps({"format": 9, "shards": 2}))
    with pytest.raises(InputError, match="has format 9"):
        open_store(str(tmp_path / "users"))


def test_many_users_in_one_request(run: Path, tmp_path: Path, make_engine: MakeEngine) -> None:
    """Each file has its own writer; results come in the order of the requests."""
    store = open_store(str(tmp_path / "users"), 3)
    engine = make_engine(run, store)
    requests = [Append(user, events("i01", "i02")) for user in (*USERS, *USERS)]
    assert [each.user for each in engine.append_many(requests)] == [*USERS, *USERS]
    threads = [
        threading.Thread(
            target=lambda user=user: [
                engine.append(user, [NewEvent(f"i{n:02d}", 10.0 + n, f"e{n}")]) for n in range(15)
            ]
        )
        for user in USERS[:6]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for user in USERS[:6]:
        assert engine.user(user).events == 19
        assert_rebuilt_is_the_same(engine, store, user)


def test_backup_is_a_store(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "users"), 3)
    fill(store)
    store.forget("u1")
    store.change_shared("rules", {"family": "{}"})
    backup(store, tmp_path / "copy")
    copy = open_store(str(tmp_path / "copy"))
    assert content(copy) == content(store)
    assert copy.shared("rules") == {"family": "{}"}
    assert copy.forgotten() == store.forgotten()
    assert check_store(copy) == []
    copy.close()
    store.close()


def test_out_of_one_file_and_back(tmp_path: Path) -> None:
    one, several = open_store(str(tmp_path / "one.sqlite")), open_store(str(tmp_path / "users"), 3)
    fill(one)
    one.forget("u1")
    assert export_users(one, tmp_path / "a.jsonl") == 2
    done = import_users(several, tmp_path / "a.jsonl", 100)
    assert (done.users, done.marks) == (2, True)
    assert (content(several), several.forgotten()) == (content(one), one.forgotten())
    again = Change("u1", None, [Event("a", 1.0)], None, 9, unless_forgotten=True)
    assert several.commit([again]) == [False]
    one.close()
    several.close()


def test_a_user_in_the_wrong_file_is_reported(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "users"), 2)
    assert isinstance(store, ShardedStore)
    wrong = store._parts[1 - shard_of("u1", 2)]
    wrong.commit([Change("u1", None, [Event("a", 1.0)], None, 9)])
    assert "user 'u1' is in the wrong file" in store.problems()
    store.close()


def test_the_commands(tmp_path: Path) -> None:
    place = tmp_path / "users"
    store = open_store(str(place), 2)
    fill(store)
    store.forget("u0")
    store.close()
    assert linrec("store", "check", place) == (0, "every record is as it was written\n")
    assert linrec("store", "vacuum", place)[0] == 0
    assert linrec("store", "backup", place, tmp_path / "copy")[0] == 0
    assert linrec("store", "export", place, tmp_path / "a.jsonl")[0] == 0
    new = tmp_path / "new"
    code, text = linrec("store", "import", new, tmp_path / "a.jsonl", "--store-shards", 3)
    assert (code, text) == (0, "stored 2 users; 0 were there or are forgotten\n")
    assert len(list(new.glob("*.sqlite"))) == 3
    with closing(sqlite3.connect(place / "users-0000.sqlite")) as behind, behind:
        behind.execute("UPDATE users SET newest = 7")
    with closing(sqlite3.connect(place / "users-0001.sqlite")) as behind, behind:
        behind.execute("UPDATE users SET newest = 7")
    code, text = linrec("store", "check", place)
    assert code == 1
    assert "a record is not what was written" in text
