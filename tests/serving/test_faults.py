"""Killed, starved, cut off: what was acknowledged is there once, and what cannot be is reported."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.serving import Engine, EngineSettings, NewEvent, StoreError, open_store
from linrec.serving.batcher import ClosedError
from linrec.serving.stores import SQLiteStore
from linrec.types import InputError
from tests.serving.cases import assert_rebuilt_is_the_same, make_run
from tests.serving.redis_server import RedisServer
from tests.serving.serving_process import ServeProcess, client, within

USERS = 4
ENOUGH = 40  # acknowledged events before something happens


class Load:
    """Users whose events are sent one by one until it is over; what was answered is written down.

    An event whose answer got lost is sent again, as clients do: its id makes that harmless.
    """

    def __init__(self, url: str) -> None:
        self.acknowledged: dict[str, list[str]] = {f"user-{n}": [] for n in range(USERS)}
        self.statuses: list[int] = []
        self.sentences: set[str] = set()
        self._url, self._over = url, threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(user,)) for user in self.acknowledged
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def wait_for(self, more: int) -> None:
        wanted, until = self.count() + more, time.monotonic() + 60
        while self.count() < wanted:
            assert time.monotonic() < until, f"only {self.count()} of {wanted} events got through"
            time.sleep(0.01)

    def _send(self, user: str) -> None:
        with client(self._url) as http:
            number = 0
            while not self._over.is_set():
                event = {"item": f"i{number % 16:02d}", "id": f"e{number}"}
                with contextlib.suppress(httpx.TransportError):
                    answer = http.post("/v1/events", json={"user": user, "events": [event]})
                    self.statuses.append(answer.status_code)
                    if answer.status_code == 200:
                        self.acknowledged[user].append(f"e{number}")
                        number += 1
                        continue
                    self.sentences.add(answer.json()["error"])
                time.sleep(0.02)


def assert_nothing_lost(load: Load, place: str, run: Path) -> None:
    store = open_store(place)
    engine = Engine(run, store)
    for user, acknowledged in load.acknowledged.items():
        kept = [event.id for event in store.history(user)]
        assert len(kept) == len(set(kept))
        # one more may have been kept whose answer did not get through
        assert kept[: len(acknowledged)] == acknowledged
        assert len(kept) <= len(acknowledged) + 1
        assert_rebuilt_is_the_same(engine, store, user)
        assert engine.user(user).state == "current"
    assert engine.rebuilt == 0  # the stored states and the few events since were enough
    engine.close()


@pytest.mark.slow
def test_killed_with_sqlite(run: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "users.sqlite")
    server = ServeProcess(run, place)
    with Load(server.start()) as load:
        load.wait_for(ENOUGH)
        server.kill()
    assert_nothing_lost(load, place, run)


@pytest.mark.slow
@pytest.mark.service
def test_killed_with_redis_and_redis_too(run: Path, redis_server: RedisServer) -> None:
    redis_server.empty()
    server = ServeProcess(run, redis_server.url)
    with Load(server.start()) as load:
        load.wait_for(ENOUGH)
        redis_server.kill()
        server.kill()
    redis_server.start()
    assert_nothing_lost(load, redis_server.url, run)


@pytest.mark.slow
def test_ended_and_told_to_reload(data: SequenceStore, tmp_path: Path) -> None:
    """SIGHUP loads the new weights, SIGTERM answers what was taken; no request fails for either."""
    run, place = make_run(tmp_path / "run", data), str(tmp_path / "users.sqlite")
    server = ServeProcess(run, place)
    url = server.start()
    with client(url) as http, Load(url) as load:
        before = http.get("/healthz").json()["model"]["fingerprint"]
        load.wait_for(5)
        make_run(run, data, seed=3)
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 60
        while http.get("/healthz").json()["model"]["fingerprint"] == before:
            assert time.monotonic() < until, "it did not reload"
            time.sleep(0.05)
        load.wait_for(5)
        assert server.end() == 0
    assert set(load.statuses) == {200}
    store = open_store(place)
    for user, acknowledged in load.acknowledged.items():
        assert [event.id for event in store.history(user)] == acknowledged
    store.close()
    log = server.log.read_text()
    assert '"changed": true' in log
    assert "user-" not in log
    assert "Traceback" not in log


@pytest.mark.slow
@pytest.mark.service
def test_redis_goes_and_comes_back(run: Path, redis_server: RedisServer) -> None:
    redis_server.empty()
    engine = Engine(run, open_store(redis_server.url))
    with within(engine) as url, Load(url) as load, client(url) as http:
        load.wait_for(ENOUGH)
        redis_server.kill()
        try:
            for path in ("/readyz", "/v1/users/user-0"):
                answer = http.get(path)
                assert answer.status_code == 503
                assert answer.headers["retry-after"] == "1"
                assert answer.json() == {
                    "error": "the Redis store does not answer; try again later"
                }
            assert http.get("/healthz").status_code == 200
        finally:
            redis_server.start()
        load.wait_for(ENOUGH)
        assert http.get("/readyz").status_code == 200
    assert set(load.statuses) == {200, 503}
    assert load.sentences == {"the Redis store does not answer; try again later"}
    assert_nothing_lost(load, redis_server.url, run)


class SmallDisk(SQLiteStore):
    pages = 40

    def _borrow(self) -> sqlite3.Connection:
        connection = super()._borrow()
        connection.execute(f"PRAGMA max_page_count={self.pages}")
        return connection


def test_a_full_disk(
    run: Path, other_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(run, SmallDisk(tmp_path / "users.sqlite"))
    with within(engine) as url, client(url) as http:
        taken: list[str] = []
        for number in range(500):
            user = f"u{number}"
            answer = http.post("/v1/events", json={"user": user, "events": [{"item": "i01"}]})
            if answer.status_code != 200:
                break
            taken.append(user)
        assert answer.status_code == 507
        message = "the disk of the store users.sqlite is full; free some space"
        assert answer.json() == {"error": message}
        full = http.get("/readyz")
        assert (full.status_code, full.json()) == (507, {"error": message})
        assert http.post("/v1/recommendations", json={"user": "u0"}).json()["source"] == "model"
        engine.reload(other_run)  # every state has to be rebuilt, and cannot be stored
        assert http.post("/v1/recommendations", json={"user": "u0"}).json()["source"] == "model"
        monkeypatch.setattr(SmallDisk, "pages", 100_000)
        assert http.get("/readyz").status_code == 200
        assert http.post("/v1/events", json={"user": "z", "events": [{"item": "i01"}]}).is_success
        assert http.get("/v1/users?limit=1000").json()["users"] == sorted([*taken, "z"])


def test_a_damaged_row_is_made_anew(run: Path, tmp_path: Path) -> None:
    """Bytes changed behind the back of a server that has no copy in memory."""
    place = tmp_path / "users.sqlite"
    engine = Engine(run, open_store(str(place)), EngineSettings(cache_mb=0))
    with within(engine) as url, client(url) as http:
        body = {"user": "u", "events": [{"item": "i01"}, {"item": "i02"}]}
        assert http.post("/v1/events", json=body).is_success
        good = http.post("/v1/recommendations", json={"user": "u"}).json()
        with contextlib.closing(sqlite3.connect(place)) as behind, behind:
            behind.execute("UPDATE snapshots SET content = randomblob(length(content))")
        assert http.get("/v1/users/u").json()["state"] == "stale"
        again = http.post("/v1/recommendations", json={"user": "u"}).json()
        assert [i["item"] for i in again["items"]] == [i["item"] for i in good["items"]]
        assert http.get("/v1/users/u").json()["state"] == "current"


def test_closing_answers_what_was_taken(run: Path, make_engine: Callable[..., Engine]) -> None:
    engine = make_engine(run)
    outcomes: list[object] = []

    def append(number: int) -> None:
        try:
            outcomes.append(engine.append("u", [NewEvent("i01", id=str(number))]).appended)
        except ClosedError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=append, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    engine.close()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 20
    assert outcomes.count(1) == len(engine.store.history("u"))


def test_a_full_redis(
    run: Path, redis_server: RedisServer, make_engine: Callable[..., Engine]
) -> None:
    import redis

    redis_server.empty()
    engine = make_engine(run, open_store(redis_server.url))
    engine.append("u", [NewEvent("i01")])
    control = redis.Redis(port=redis_server.port)
    try:
        with within(engine) as url, client(url) as http:
            control.config_set("maxmemory", 1)
            body = {"user": "v", "events": [{"item": "i01"}]}
            for answer in (http.post("/v1/events", json=body), http.get("/readyz")):
                assert answer.status_code == 507
                assert "has no memory left" in answer.json()["error"]
            assert http.post("/v1/recommendations", json={"user": "u"}).is_success
            control.config_set("maxmemory", 0)
            assert http.get("/readyz").json() == {"status": "ready"}
    finally:
        control.config_set("maxmemory", 0)


def test_a_redis_that_refuses_the_login(redis_server: RedisServer) -> None:
    import redis

    control = redis.Redis(port=redis_server.port)
    try:
        control.config_set("requirepass", "secret")
        with pytest.raises(StoreError, match="refuses the login; check the password"):
            open_store(redis_server.url).check()
        control = redis.Redis(port=redis_server.port, password="secret")
    finally:
        control.config_set("requirepass", "")


def test_redis_settings_that_lose_events(
    run: Path, redis_server: RedisServer, make_engine: Callable[..., Engine]
) -> None:
    import redis

    control, store = redis.Redis(port=redis_server.port), open_store(redis_server.url)
    assert store.warnings() == []
    try:
        control.config_set("maxmemory-policy", "allkeys-lru")
        control.config_set("appendfsync", "everysec")
        assert [warning.split(",")[0] for warning in store.warnings()] == [
            "Redis has maxmemory-policy allkeys-lru", "Redis has appendfsync everysec"
        ]  # fmt: skip
        with pytest.raises(InputError, match="can lose stored events"):
            make_engine(run, store, unsafe_store="refuse")
        with within(make_engine(run, store)) as url, client(url) as http:
            assert len(http.get("/readyz").json()["store_warnings"]) == 2
    finally:
        control.config_set("maxmemory-policy", "noeviction")
        control.config_set("appendfsync", "always")
