"""Two models on one store, as in a rolling deployment: each keeps its own state."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.serving import Engine, NewEvent, Store, open_store
from linrec.serving.stores import Change, DamagedError, Event
from linrec.serving.stores.sqlite_schema import version_warnings
from tests.serving.cases import assert_rebuilt_is_the_same, events, make_run, scores
from tests.serving.redis_server import RedisServer

MakeEngine = Callable[..., Engine]


def test_reading_in_turn_rebuilds_nothing(
    run: Path, other_run: Path, store: Store, make_engine: MakeEngine
) -> None:
    old, new = make_engine(run, store), make_engine(other_run, store)
    old.append("u", events("i01", "i02", "i03"))
    for _ in range(3):
        for engine in (old, new):
            scores(engine, "u")
            assert engine.user("u").state == "current"
    assert (old.rebuilt, new.rebuilt) == (0, 1)


def test_appending_in_turn_catches_up(
    run: Path, other_run: Path, store: Store, make_engine: MakeEngine
) -> None:
    old, new = make_engine(run, store), make_engine(other_run, store)
    old.append("u", events("i01", "i02"))
    scores(new, "u")
    for number in range(6):
        engine = (old, new)[number % 2]
        engine.append("u", [NewEvent(f"i{3 + number:02d}", 10.0 + number)])
        assert engine.user("u").state == "current"
    for number in range(3):  # several by one server, then a reader of the other
        old.append("u", [NewEvent(f"i{10 + number}", 20.0 + number)])
    for engine in (old, new):
        assert_rebuilt_is_the_same(engine, store, "u")
        assert engine.user("u").state == "current"
    assert (old.rebuilt, new.rebuilt) == (0, 1)


def test_a_late_event_ends_both_states(
    run: Path, other_run: Path, store: Store, make_engine: MakeEngine
) -> None:
    old, new = make_engine(run, store), make_engine(other_run, store)
    old.append("u", [NewEvent("i01", 5.0), NewEvent("i02", 9.0, "e")])
    scores(new, "u")
    old.append("u", [NewEvent("i07", 7.0)])
    for engine in (old, new):
        assert engine.user("u").state == "stale"
        assert_rebuilt_is_the_same(engine, store, "u")
    new.delete_event("u", "e")
    for engine in (old, new):
        assert engine.user("u").state == "stale"
        assert_rebuilt_is_the_same(engine, store, "u")


def test_the_newest_two_are_kept(
    run: Path, other_run: Path, store: Store, data: SequenceStore, tmp_path: Path,
    make_engine: MakeEngine,
) -> None:  # fmt: skip
    third = make_run(tmp_path / "third", data, seed=2)
    engines = [make_engine(each, store) for each in (run, other_run, third)]
    engines[0].append("u", events("i01"))
    for engine in engines:
        scores(engine, "u")
    head = store.heads(["u"])[0]
    assert head is not None
    assert len(head.snapshots) == 2
    assert [engine.user("u").state for engine in engines] == ["stale", "current", "current"]


FORMAT_1 = """
CREATE TABLE users (number INTEGER PRIMARY KEY, user TEXT NOT NULL UNIQUE, version TEXT NOT NULL,
    events INTEGER NOT NULL, arrived INTEGER NOT NULL, newest REAL NOT NULL, snapshot BLOB);
CREATE TABLE events (number INTEGER NOT NULL, time REAL NOT NULL, arrival INTEGER NOT NULL,
    item TEXT NOT NULL, id TEXT, PRIMARY KEY (number, time, arrival)) WITHOUT ROWID;
CREATE UNIQUE INDEX ids ON events (number, id) WHERE id IS NOT NULL;
CREATE TABLE probe (content BLOB);
CREATE TABLE forgotten (digest BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE salt (number INTEGER PRIMARY KEY CHECK (number = 1), value BLOB);
PRAGMA user_version=1;
"""


def test_a_file_of_the_older_format_is_upgraded(
    run: Path, tmp_path: Path, make_engine: MakeEngine
) -> None:
    model = make_engine(run)
    model.append("u", events("i01", "i02"))
    head = model.store.heads(["u"])[0]
    assert head is not None
    place = tmp_path / "users.sqlite"
    with contextlib.closing(sqlite3.connect(place)) as old, old:
        old.executescript(FORMAT_1)
        row = (1, "u", head.version, 2, 2, 1.0, head.snapshot)
        old.execute("INSERT INTO users VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        old.execute("INSERT INTO users VALUES (2, 'v', 'a', 0, 0, ?, NULL)", (float("-inf"),))
        old.execute("INSERT INTO events VALUES (1, 0.0, 0, 'i01', 'e'), (1, 1.0, 1, 'i02', NULL)")
        old.execute("INSERT INTO salt VALUES (1, x'00')")
    store = open_store(str(place))
    engine = make_engine(run, store)
    assert engine.user("u").state == "current"
    assert store.history("u") == [Event("i01", 0.0, "e"), Event("i02", 1.0)]
    assert store.known_ids([("u", ["e"])]) == [{"e"}]
    engine.append("u", events("i03", first=5))
    engine.append("v", events("i03", first=5))
    assert engine.rebuilt == 0
    assert_rebuilt_is_the_same(engine, store, "u")
    assert store.problems() == []
    assert store.expire(1e9, 10) == 0  # their time began with the upgrade


@pytest.mark.service
def test_a_redis_of_the_older_format(
    run: Path, redis_server: RedisServer, make_engine: MakeEngine
) -> None:
    import redis

    redis_server.empty()
    model = make_engine(run)
    model.append("u", events("i01"))
    head = model.store.heads(["u"])[0]
    assert head is not None
    raw = redis.Redis(port=redis_server.port)
    raw.hset("linrec:head:u", mapping={
        "version": head.version, "arrived": 1, "events": 1, "newest": 0,
        "snapshot": head.snapshot or b"",
    })  # fmt: skip
    raw.zadd("linrec:events:u", {'0000000000000000["i01", null]': 0.0})
    raw.zadd("linrec:users", {"u": 0})
    store = open_store(redis_server.url)
    engine = make_engine(run, store)
    assert engine.user("u").state == "current"
    engine.append("u", events("i02", first=5))
    assert engine.rebuilt == 0
    assert_rebuilt_is_the_same(engine, store, "u")
    assert raw.hget("linrec:head:u", "snapshot") is None
    assert store.expire(1e9, 10) == 0


DAMAGE = {
    "item": "UPDATE events SET item = 'i09' WHERE time = 2",
    "time": "UPDATE events SET time = 2.5 WHERE time = 2",
    "id": "UPDATE events SET id = 'other' WHERE time = 2",
    "event gone": "DELETE FROM events WHERE time = 2",
    "head": "UPDATE users SET newest = 7",
    "count": "UPDATE users SET events = 2",
    "version": "UPDATE users SET version = 'ffff'",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_records_of_sqlite_are_reported(tmp_path: Path, damage: str) -> None:
    place = tmp_path / "users.sqlite"
    store = open_store(str(place))
    given = [Event("i01", 1.0), Event("i02", 2.0, "e"), Event("i03", 3.0)]
    assert store.commit([Change("u", None, given, None, 100)]) == [True]
    with contextlib.closing(sqlite3.connect(place)) as behind, behind:
        behind.execute(DAMAGE[damage])

    def read() -> object:
        return store.heads(["u"]), store.history("u")

    with pytest.raises(DamagedError, match="damaged records"):
        read()
    store.close()


@pytest.mark.service
def test_damaged_events_of_redis_are_reported(redis_server: RedisServer) -> None:
    import redis

    redis_server.empty()
    store = open_store(redis_server.url)
    assert store.commit([Change("u", None, [Event("i01", 1.0)], None, 100)]) == [True]
    raw = redis.Redis(port=redis_server.port)
    (member,) = raw.zrange("linrec:events:u", 0, -1)
    raw.zadd("linrec:events:u", {member: 4.0})
    with pytest.raises(DamagedError, match="damaged records"):
        store.history("u")
    assert store.heads(["u"])[0] is not None
    raw.hset("linrec:head:u", "events", 2)
    with pytest.raises(DamagedError, match="damaged records"):
        store.heads(["u"])


@pytest.mark.parametrize(
    ("version", "bad"),
    [
        ((3, 40, 1), True), ((3, 44, 5), True), ((3, 44, 6), False), ((3, 50, 7), False),
        ((3, 51, 2), True), ((3, 51, 3), False), ((3, 53, 0), False),
    ],
)  # fmt: skip
def test_versions_of_sqlite_with_a_bug_of_the_log(version: tuple[int, ...], bad: bool) -> None:
    assert bool(version_warnings(version)) == bad
