"""What is forgotten is gone: from answers, from files, and from the next import."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.serving import Engine, NewEvent, Store, UnknownError, open_store
from linrec.serving.bulk import import_histories
from linrec.serving.ids import check_new_id
from linrec.serving.stores import Change, Event, SQLiteStore, sqlite_connections
from linrec.serving.stores import sqlite as sqlite_module
from linrec.types import InputError
from tests.serving.cases import assert_rebuilt_is_the_same, events, scores
from tests.serving.redis_server import RedisServer
from tests.serving.serving_process import client, within

MakeEngine = Callable[..., Engine]
USERS = 200


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


# ---------------------------------------------------------------------------------------- imports


def test_a_forgotten_user_does_not_come_back_with_the_data(
    data: SequenceStore, store: Store
) -> None:
    import_histories(data, store, 1000)
    assert store.forget("103")
    store.forget("104")
    assert import_histories(data, store, 1000) == (0, 2)
    assert store.heads(["103"]) == [None]
    assert import_histories(data, store, 1000, resurrect=True) == (2, 0)
    assert store.heads(["103"]) != [None]
    assert store.forget("103")  # and again
    assert import_histories(data, store, 1000) == (0, 1)


def test_who_was_never_there_can_be_forgotten(data: SequenceStore, store: Store) -> None:
    assert not store.forget("103")
    assert import_histories(data, store, 1000) == (data.n_users - 1, 1)


def test_a_forgotten_user_may_return_by_itself(
    run: Path, store: Store, data: SequenceStore, make_engine: MakeEngine
) -> None:
    engine = make_engine(run, store)
    import_histories(data, store, 1000)
    engine.forget("103")
    engine.append("103", events("i01"))
    import_histories(data, store, 1000)
    assert [event.item for event in store.history("103")] == ["i01"]


def test_the_mark_of_a_forgotten_user_is_not_the_id(tmp_path: Path) -> None:
    with contextlib.closing(open_store(str(tmp_path / "users.sqlite"))) as store:
        store.forget("somebody-special")
        assert b"somebody" not in bytes_of(tmp_path)


# ------------------------------------------------------------------------------------------ bytes


def fill(store: Store) -> list[str]:
    """Users whose rows grow and move between pages."""
    rng = random.Random(0)
    users = [f"USER{secrets.token_hex(8)}" for _ in range(USERS)]
    for turn in range(6):
        rng.shuffle(users)
        changes = []
        for head, user in zip(store.heads(users), users, strict=True):
            new = [
                Event(f"ITEM-{user}-{turn}-{n}", rng.random(), f"ID-{user}-{turn}-{n}")
                for n in range(rng.randrange(1, 4))
            ]
            snapshot = os.urandom(rng.randrange(100, 3000))
            changes.append(Change(user, head and head.version, new, snapshot, 10))
        assert all(store.commit(changes))
    return users


def test_no_byte_remains_in_pages_or_log(tmp_path: Path) -> None:
    with contextlib.closing(SQLiteStore(tmp_path / "users.sqlite")) as store:
        users = fill(store)
        for user in users[::2]:
            done = store.forget(user)
            assert (done.existed, done.pending) == (True, False)
        left = bytes_of(tmp_path)
        assert [user for user in users[::2] if user.encode() in left] == []
        assert all(user.encode() in left for user in users[1::2])


def test_large_files_wait_for_vacuum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "MAX_REWRITE", 0)
    with contextlib.closing(SQLiteStore(tmp_path / "users.sqlite")) as store:
        users = fill(store)
        assert all(store.forget(user).pending for user in users[::2])
        assert store.vacuum()
        left = bytes_of(tmp_path)
        assert [user for user in users[::2] if user.encode() in left] == []


def test_a_reader_in_the_way_is_reported_and_the_log_emptied_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connections, "ERASE_WAIT", 0.05)
    path = tmp_path / "users.sqlite"
    with contextlib.closing(SQLiteStore(path)) as store:
        assert store.commit([Change("someone", None, [Event("private", 1.0)], None, 10)])[0]
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM users").fetchall()
            assert store.forget("someone").pending
            assert b"private" in bytes_of(tmp_path)
            assert not store.vacuum()
        store.check()
        assert b"private" not in bytes_of(tmp_path)
        assert b"someone" not in bytes_of(tmp_path)


def test_redis_reports_its_files_and_vacuum_writes_them_again(
    redis_server: RedisServer,
) -> None:
    redis_server.empty()
    with contextlib.closing(open_store(redis_server.url)) as store:
        store.commit([Change("someone-special", None, [Event("private", 1.0)], None, 10)])
        assert store.forget("someone-special").pending
        assert store.vacuum()
        files = [path for path in redis_server.folder.rglob("*") if path.is_file()]
        assert not any(b"someone-special" in path.read_bytes() for path in files)


# ------------------------------------------------------------------------------------ single events


def test_deleting_and_correcting_single_events(
    run: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(run, store)
    engine.append("u", [NewEvent(f"i{n:02d}", float(n), f"e{n}") for n in range(5)])
    engine.append("u", [NewEvent("i09", 9.0)])
    assert engine.delete_event("u", "e2")
    assert not engine.delete_event("u", "e2")
    assert not engine.delete_event("nobody", "e2")
    assert [event.item for event in store.history("u")] == ["i00", "i01", "i03", "i04", "i09"]
    assert engine.user("u").state == "stale"
    assert "i02" in scores(engine, "u")
    engine.correct_event("u", "e3", "i12")
    engine.correct_event("u", "e0", "i10", 20.0)
    assert [event.item for event in store.history("u")] == ["i01", "i12", "i04", "i09", "i10"]
    head = store.heads(["u"])[0]
    assert head is not None
    assert (head.events, head.newest) == (5, 20.0)
    assert_rebuilt_is_the_same(engine, store, "u")
    with pytest.raises(UnknownError, match="no such event"):
        engine.correct_event("u", "e2", "i01")
    assert engine.append("u", [NewEvent("i02", 30.0, "e2")]).appended == 1  # its id is free again
    assert engine.append("u", [NewEvent("i10", 30.0, "e0")]).duplicates == 1
    assert_rebuilt_is_the_same(engine, store, "u")


def test_the_last_event_can_be_deleted(run: Path, store: Store, make_engine: MakeEngine) -> None:
    engine = make_engine(run, store, max_future=1e12)
    engine.append("u", [NewEvent("i01", 1e12, "e")])
    assert engine.delete_event("u", "e")
    assert engine.user("u").events == 0
    assert engine.append("u", [NewEvent("i02", 5.0)]).events == 1
    assert engine.user("u").history[0][0].time == 5.0
    assert_rebuilt_is_the_same(engine, store, "u")


def test_single_events_over_http(run: Path) -> None:
    with within(Engine(run, open_store("memory"))) as url, client(url) as http:
        for user in ("a/events/b", "a"):
            body = {
                "user": user,
                "events": [{"item": "i01", "id": "b"}, {"item": "i02", "id": "c/d"}],
            }
            assert http.post("/v1/events", json=body).status_code == 200
        history = http.get("/v1/users/a").json()["history"]
        assert [event["id"] for event in history] == ["b", "c/d"]
        answer = http.put("/v1/users/a/events/b", json={"item": "i05"})
        assert answer.json() == {"user": "a", "event": "b", "pending": False}
        assert http.delete("/v1/users/a/events/c%2Fd").json() == {
            "user": "a", "forgotten": True, "pending": False
        }  # fmt: skip
        assert [e["item"] for e in http.get("/v1/users/a").json()["history"]] == ["i05"]
        assert http.put("/v1/users/a/events/x", json={"item": "i05"}).status_code == 404
        # a user whose id looks like that address
        name = quote("a/events/b", safe="")
        assert http.get(f"/v1/users/{name}").json()["events"] == 2
        assert http.delete(f"/v1/users/{name}").json()["forgotten"]
        assert http.get("/v1/users/a").json()["events"] == 1


# -------------------------------------------------------------------------------------------- ids

CONTROL = ["a\nb", "a\n", "\x7f", "tab\t", "\x85", "\x1b[31m"]


@pytest.mark.parametrize("text", CONTROL, ids=repr)
def test_control_characters_are_refused(run: Path, make_engine: MakeEngine, text: str) -> None:
    engine = make_engine(run)
    for user, event in (
        (text, NewEvent("i01")),
        ("u", NewEvent(text)),
        ("u", NewEvent("i01", id=text)),
    ):
        with pytest.raises(InputError, match="control characters"):
            engine.append(user, [event])
    assert engine.store.users("", 10) == []


def test_which_ids_are_taken() -> None:
    for text in ("a", "\u4e2d", "a b", "\u2028", "x" * 256):
        assert check_new_id(text) == text
    for text in ("", "x" * 257):
        with pytest.raises(InputError, match="1 to 256 characters"):
            check_new_id(text)


def test_every_stored_id_is_reachable(run: Path) -> None:
    """Also those of an earlier version, which refused less."""
    store = open_store("memory")
    names = [*CONTROL, "a/b", "/", "a/events/e", "\ufdd0", "\ufdd01", "%2F", "a%", "\u4e2d?#"]
    for name in names:
        assert store.commit([Change(name, None, [Event("i01", 1.0, name)], None, 10)])[0]
    with within(Engine(run, store)) as url, client(url) as http:
        for name in names:
            refused = http.post("/v1/events", json={"user": name, "events": [{"item": "i01"}]})
            assert refused.status_code == (422 if name in CONTROL else 200)
            path = f"/v1/users/{quote(name, safe='')}"
            assert http.get(path).json()["user"] == name
            assert http.post("/v1/recommendations", json={"user": name}).json()["user"] == name
            assert http.delete(f"{path}/events/{quote(name, safe='')}").json()["forgotten"]
            assert http.delete(path).json()["forgotten"]
        assert store.users("", 10) == []
