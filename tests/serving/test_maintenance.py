"""`linrec store`, and users whose time is over."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linrec.cli import app
from linrec.serving import Engine, NewEvent, Store, open_store
from linrec.serving.http import reloading
from linrec.serving.maintenance import (
    all_users,
    backup,
    check_store,
    export_users,
    import_users,
)
from linrec.serving.stores import Change, Event
from linrec.types import InputError
from tests.serving.cases import events
from tests.serving.serving_process import client, within

MakeEngine = Callable[..., Engine]
DAY = 86_400.0


def fill(store: Store, users: int = 3) -> None:
    for number in range(users):
        given = [Event("a", 1.0, "e1"), Event("b\u00e9", 2.5)]
        assert store.commit([Change(f"u{number}", None, given, b"state", 100)]) == [True]


def content(store: Store) -> dict[str, list[Event]]:
    return {user: store.history(user) for user in all_users(store)}


def linrec(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def test_all_users_are_found_in_pieces(store: Store) -> None:
    changes = [Change(f"u{n:04d}", None, [Event("x", 1.0)], None, 9) for n in range(450)]
    store.commit(changes)
    assert list(all_users(store)) == [f"u{n:04d}" for n in range(450)]


def test_check_and_export_and_import(store: Store, tmp_path: Path) -> None:
    fill(store)
    store.forget("u1")
    assert check_store(store) == []
    file = tmp_path / "users.jsonl"
    assert export_users(store, file) == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    other = open_store(str(tmp_path / "other.sqlite"))
    done = import_users(other, file, 100)
    assert (done.users, done.left_out) == (2, 0)
    assert content(other) == content(store)
    assert import_users(other, file, 100).left_out == 2
    assert check_store(other) == []
    assert done.marks  # who was forgotten there is forgotten here
    again = Change("u1", None, [Event("a", 1.0)], None, 9, unless_forgotten=True)
    assert other.commit([again]) == [False]
    other.forget("u0")
    assert import_users(other, file, 100).users == 0
    assert import_users(other, file, 100, resurrect=True).users == 1
    other.close()


@pytest.mark.parametrize(
    "text",
    ["", "no json", "{}", '{"linrec_users": 9, "key": "", "forgotten": []}',
     '{"linrec_users": 1, "key": "", "forgotten": []}\n{"user": "u", "events": [["a"]]}',
     '{"linrec_users": 1, "key": "", "forgotten": []}\n{"user": "a\\u0000", "events": []}'],
)  # fmt: skip
def test_a_damaged_export_stores_nothing(tmp_path: Path, text: str) -> None:
    file, store = tmp_path / "users.jsonl", open_store("memory")
    file.write_text(text)
    with pytest.raises(InputError, match="export"):
        import_users(store, file, 100)
    assert store.users("", 9) == []


def test_a_backup_while_it_is_written(place: str, tmp_path: Path) -> None:
    if place == "memory":
        pytest.skip("nothing to copy")
    store = open_store(place)
    fill(store)
    backup(store, tmp_path / "copy")
    fill_more = Change("later", None, [Event("x", 1.0)], None, 9)
    assert store.commit([fill_more]) == [True]
    if place.startswith("redis"):
        restored = open_store(str(tmp_path / "restored.sqlite"))
        import_users(restored, tmp_path / "copy", 100)
    else:
        restored = open_store(str(tmp_path / "copy"))
    assert sorted(content(restored)) == ["u0", "u1", "u2"]
    assert check_store(restored) == []
    restored.close()
    store.close()
    assert not list(tmp_path.glob(".*draft*"))


def test_the_commands(tmp_path: Path) -> None:
    place = tmp_path / "users.sqlite"
    store = open_store(str(place))
    fill(store)
    assert linrec("store", "check", place) == (0, "every record is as it was written\n")
    assert linrec("store", "backup", place, tmp_path / "copy.sqlite")[0] == 0
    assert linrec("store", "export", place, tmp_path / "users.jsonl")[0] == 0
    code, said = linrec("store", "import", tmp_path / "new.sqlite", tmp_path / "users.jsonl")
    assert (code, "stored 3 users" in said) == (0, True)
    assert linrec("store", "vacuum", place)[0] == 0
    with contextlib.closing(sqlite3.connect(place)) as behind, behind:
        behind.execute("UPDATE events SET item = 'other' WHERE number = 2")
    code, said = linrec("store", "check", place)
    assert (code, "user 'u1': a record is not what was written" in said) == (1, True)
    store.close()


def test_users_expire(store: Store) -> None:
    now = time.time()
    for user, days in (("old", 40), ("new", 2)):
        change = Change(user, None, [Event("a", 1.0)], None, 9, written=now - days * DAY)
        assert store.commit([change]) == [True]
    head = store.heads(["old"])[0]
    assert head is not None  # a rebuilt state is not an event
    assert store.commit([Change("old", head.version, (), b"state", 9)]) == [True]
    assert store.expire(now - 30 * DAY, 10) == 1
    assert store.users("", 9) == ["new"]
    assert store.history("old") == []
    again = Change("old", None, [Event("a", 1.0)], None, 9, unless_forgotten=True)
    assert store.commit([again]) == [False]  # a dataset does not bring them back
    assert store.expire(now - 30 * DAY, 10) == 0


def test_a_server_forgets_users_whose_time_is_over(
    run: Path, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "EXPIRE_SECONDS", 0.05)
    store = open_store("memory")
    old = Change("old", None, [Event("i01", 1.0)], None, 9, written=time.time() - 2 * DAY)
    assert store.commit([old]) == [True]
    engine = make_engine(run, store, user_ttl=1.0)
    engine.append("new", [NewEvent("i01")])
    with within(engine) as url, client(url) as http:
        until = time.monotonic() + 30
        while http.get("/v1/users").json()["users"] != ["new"]:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert http.get("/readyz").json() == {"status": "ready"}


def test_without_a_ttl_nobody_expires(run: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(run)
    engine.append("u", events("i01"))
    assert engine.expire() == 0
