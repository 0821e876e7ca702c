"""The API over a real socket: what it answers, and what it answers to everything else."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.serving import Engine, Store, StoreError, StoreFullError, open_store
from linrec.serving.bulk import import_histories
from linrec.serving.http.observing import JsonLines
from linrec.serving.http.options import check_exposure, read_token
from linrec.types import InputError
from tests.serving.cases import make_run
from tests.serving.serving_process import client, within

TOKEN = "a-token-of-some-length"
JSON = {"Content-Type": "application/json"}
MakeEngine = Callable[..., Engine]


@pytest.fixture(scope="module")
def url(run: Path) -> Iterator[str]:
    with within(Engine(run, open_store("memory"))) as address:
        yield address


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with client(url) as asking:
        yield asking


def post(http: httpx.Client, path: str, **body: object) -> dict[str, object]:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


# ------------------------------------------------------------------------------------ as documented


def test_events_then_recommendations(http: httpx.Client) -> None:
    event = {"item": "i01", "time": 5.0, "id": "e1"}
    message = post(http, "/v1/events", user="u1", events=[event, {"item": "i02"}])
    assert message == {"user": "u1", "appended": 2, "duplicates": 0, "events": 2}
    again = post(http, "/v1/events", batch=[{"user": "u1", "events": [event]}])
    assert again == {"batch": [{"user": "u1", "appended": 0, "duplicates": 1, "events": 2}]}
    found = http.post("/v1/recommendations", json={"user": "u1", "k": 3}).json()
    assert (found["user"], found["source"], len(found["items"])) == ("u1", "model", 3)
    assert set(found["items"][0]) == {"item", "title", "score"}
    several = [{"user": "u1", "k": 3}, {"history": ["i01", "i02"], "k": 2}, {"user": "nobody"}]
    batch = http.post("/v1/recommendations", json={"batch": several}).json()["batch"]
    assert [each["source"] for each in batch] == ["model", "model", "cold-start"]
    assert [i["item"] for i in batch[0]["items"]] == [i["item"] for i in found["items"]]
    assert batch[1]["user"] is None
    chosen = post(http, "/v1/recommendations", user="u1", only=["i05", "i06"], exclude=["i06"])
    assert [item["item"] for item in chosen["items"]] == ["i05"]  # type: ignore[attr-defined]


def test_numbers_are_ids_too(http: httpx.Client) -> None:
    assert post(http, "/v1/events", user=7, events=[{"item": "i01", "id": 1}])["user"] == "7"
    assert (
        post(http, "/v1/events", user="7", events=[{"item": "i01", "id": "1"}])["duplicates"] == 1
    )
    assert http.get("/v1/users/7").json()["events"] == 1


def test_users(http: httpx.Client) -> None:
    for user in ("find me", "find/us?", "find \u4e2d%"):
        post(http, "/v1/events", user=user, events=[{"item": "i01", "time": 1}, {"item": "odd"}])
    found = http.get("/v1/users", params={"search": "find"}).json()
    assert found == {"users": ["find me", "find \u4e2d%", "find/us?"]}
    for user in ("find/us%3F", "find%2Fus%3F"):
        seen = http.get(f"/v1/users/{user}", params={"limit": 1}).json()
        assert (seen["user"], seen["events"], seen["state"]) == ("find/us?", 2, "current")
        assert [(e["item"], e["title"]) for e in seen["history"]] == [("odd", None)]
    assert http.delete("/v1/users/find%20me").json() == {
        "user": "find me", "forgotten": True, "pending": False
    }  # fmt: skip
    assert not http.delete("/v1/users/find%20me").json()["forgotten"]
    assert http.get("/v1/users/find%20me").status_code == 404


def test_items(http: httpx.Client) -> None:
    found = http.get("/v1/items", params={"search": "[rec"}).json()
    assert found == {"items": [{"item": "i00", "title": "[REC] (2007)"}]}
    near = http.get("/v1/items/i00/similar", params={"k": 2}).json()
    assert (near["item"], len(near["items"])) == ("i00", 2)


def test_explanations(http: httpx.Client) -> None:
    message = post(http, "/v1/explanations", history=["i01", "i02"], item="i03")
    assert [e["item"] for e in message["events"]] == ["i01", "i02"]  # type: ignore[attr-defined]
    assert http.post("/v1/explanations", json={"user": "no", "item": "i03"}).status_code == 404


def test_operation(http: httpx.Client) -> None:
    health = http.get("/healthz").json()
    assert health["model"]["streaming"] is True
    assert health["model"]["why_no_state"] is None
    assert http.get("/readyz").json() == {"status": "ready"}
    assert 'linrec_requests_total{route="/healthz",status="200"}' in http.get("/metrics").text
    assert http.get("/").status_code == 200
    schema = http.get("/openapi.json").json()
    assert "examples" in schema["components"]["schemas"]["EventsBody"]
    assert http.get("/docs").status_code == 200


def test_a_model_without_a_state_says_so(
    data: SequenceStore, tmp_path: Path, make_engine: MakeEngine
) -> None:
    engine = make_engine(make_run(tmp_path / "run", data, attention="softmax"))
    with within(engine) as address, client(address) as http:
        assert "re-encodes" in http.get("/healthz").json()["model"]["why_no_state"]
        post(http, "/v1/events", user="u", events=[{"item": "i01"}])
        assert http.get("/v1/users/u").json()["state"] == "none"
        assert post(http, "/v1/recommendations", user="u")["source"] == "model"


# --------------------------------------------------------------------------------- everything else

BAD = [
    (b"", "the body must be a JSON object"),
    (b"null", "the body must be a JSON object"),
    (b"[1]", "the body must be a JSON object"),
    (b"{", "the body is not JSON"),
    (b'{"user": "\xff\xfe"}', "not"),
    (b'{"user": NaN}', "user: an id is text"),
    (b'{"user": true}', "user: an id is text of 1 to 256 characters in UTF-8, or an integer"),
    (b'{"user": 1.5}', "user: an id is text"),
    (b'{"user": ""}', "user: an id is text"),
    (b'{"user": "' + b"x" * 257 + b'"}', "user: an id is text"),
    (b'{"user": "\\ud800"}', "user: an id is text"),
    (b'{"user": "a\\u0000b"}', "zero character"),
    (b'{"user": ' + b"9" * 5000 + b"}", "JSON"),
    (b'{"user": ' + b"9" * 30 + b"}", "user: an id is text"),
    (b'{"user": "u", "k": 0}', "k: input should be greater"),
    (b'{"user": "u", "k": 1001}', "k: input should be less"),
    (b'{"user": "u", "history": []}', 'give one of "user" and "history"'),
    (b"{}", 'give one of "user" and "history"'),
    (b'{"user": "u", "kk": 3}', "kk is not a field of this request"),
    (b'{"batch": []}', "batch: list should have at least 1 item"),
    (b'{"batch": [{"user": 1}, {}]}', "batch.1: give one of"),
    (b'{"batch": [{"user": 1, "x": 2}]}', "batch.0.x is not a field"),
    (b'{"batch": 3}', "batch: input should be a valid list"),
    (b'{"user": {"$gt": ""}}', "user: an id is text"),
    (b'{"user": "u", "at": "noon"}', 'at: must be a number of seconds, "unknown", or left out'),
    (b'{"user": "u", "at": []}', "at: must be a number of seconds"),
    (b'{"user": "u", "at": 1e999}', "at: must be a number of seconds"),
    (b'{"history": [""]}', "history.0: an id is text"),
    (b'{"history": ["i01", {"time": 1}]}', "history.1.item is missing"),
    (b'{"history": [{"item": "i01", "time": "noon"}]}', "history.0.time: input should be a valid"),
    (b'{"history": [{"item": "i01", "when": 1}]}', "history.0.when is not a field"),
    (b'{"batch": [{"user": "u", "at": "noon"}]}', "batch.0.at: must be a number of seconds"),
    (b"[" * 100_000, "JSON"),
]


@pytest.mark.parametrize(("body", "message"), BAD, ids=lambda part: repr(part)[:30])
def test_bad_bodies_are_refused_in_one_sentence(
    http: httpx.Client, body: bytes, message: str
) -> None:
    answer = http.post("/v1/recommendations", content=body, headers=JSON)
    assert 400 <= answer.status_code < 500
    assert list(answer.json()) == ["error"]
    assert message in answer.json()["error"]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"item": "i01", "time": "soon"}, "time"),
        ({"time": 3}, "events.0.item is missing"),
        ({"item": "i01", "rating": 5}, "events.0.rating is not a field"),
        ({"item": None}, "events.0.item: an id is text"),
    ],
)
def test_bad_events(http: httpx.Client, event: dict[str, object], message: str) -> None:
    answer = http.post("/v1/events", json={"user": "u", "events": [event]})
    assert answer.status_code == 422
    assert message in answer.json()["error"]
    endless = http.post(
        "/v1/events", content=b'{"user":1,"events":[{"item":1,"time":1e999}]}', headers=JSON
    )
    assert endless.status_code == 422


def test_a_clock_that_is_wrong(http: httpx.Client) -> None:
    milliseconds = {"item": "i01", "time": time.time() * 1e3, "id": "e"}
    answer = http.post("/v1/events", json={"user": "clock", "events": [milliseconds]})
    assert answer.status_code == 422
    assert "more than 86,400 seconds ahead of this server's clock" in answer.json()["error"]
    assert http.get("/v1/users/clock").status_code == 404


def test_too_much(http: httpx.Client) -> None:
    message = http.post("/v1/events", content=b" " * 1_048_577)
    assert message.status_code == 413
    assert "1,048,576 bytes at most" in message.json()["error"]

    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 65_536

    assert http.post("/v1/events", content=endless()).status_code == 413
    events = [{"item": "i01"}] * 501
    batch = {"batch": [{"user": "a", "events": events}, {"user": "b", "events": events}]}
    many = http.post("/v1/events", json=batch)
    assert "at most 1000 events" in many.json()["error"]
    assert http.post("/v1/events", json={"user": "a", "events": events * 2}).status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/events", 405),
        ("PUT", "/v1/users/u", 405),
        ("GET", "/v1/users/%00", 422),
        ("GET", "/v1/users/%ff%fe", 422),
        ("GET", "/v1/users/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/page/..%2f..%2fengine.py", 404),
        ("GET", "/v1/items?limit=-1", 422),
        ("GET", "/v1/users?search=" + "x" * 300, 422),
        ("GET", "/v1/items/%F0%9F/similar", 422),
        ("POST", "/v1/reload", 403),
    ],
)
def test_bad_addresses(http: httpx.Client, method: str, path: str, status: int) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]


def test_hostile_ids_are_only_ids(http: httpx.Client) -> None:
    for user in ("'; DROP TABLE users; --", "{{7*7}}", "<script>", "../../x", "*", "%"):
        assert post(http, "/v1/events", user=user, events=[{"item": user}])["events"] == 1
        assert post(http, "/v1/recommendations", user=user)["source"] == "cold-start"
        assert http.delete(f"/v1/users/{quote(user, safe='')}").json()["forgotten"]


def assert_alive(http: httpx.Client) -> None:
    """Sooner or later: on a busy machine even this may take longer than such a server allows."""
    until = time.monotonic() + 60
    while http.get("/healthz").status_code != 200:
        assert time.monotonic() < until, "it does not answer any more"


def test_a_client_that_hangs_up_or_dawdles(run: Path) -> None:
    with within(Engine(run, open_store("memory")), timeout=0.5) as address:
        port = int(address.rsplit(":", 1)[1])
        head = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{"
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(head)
            assert b" 408 " in slow.recv(1000).split(b"\r\n")[0] + b" "
        with socket.create_connection(("127.0.0.1", port)) as gone:
            gone.sendall(head)
        with client(address) as http:
            assert_alive(http)


# ------------------------------------------------------------------------------------------ tokens


def test_a_token_is_asked_for(run: Path) -> None:
    with within(Engine(run, open_store("memory")), token=TOKEN) as address, client(address) as http:
        assert http.get("/healthz").status_code == 200
        assert http.get("/").status_code == 200
        for path in ("/v1/users", "/metrics", "/v1/nowhere"):
            for wrong in (None, "Bearer wrong", f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x"):
                headers = {} if wrong is None else {"Authorization": wrong}
                answer = http.get(path, headers=headers)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
        http.headers["Authorization"] = f"Bearer {TOKEN}"
        assert http.get("/v1/users").status_code == 200
        assert http.post("/v1/reload").json()["changed"] is False


def test_without_a_token_only_localhost_is_answered(http: httpx.Client) -> None:
    for name in ("localhost", "localhost:80", "127.0.0.1", "[::1]:8000"):
        assert http.get("/v1/users", headers={"Host": name}).status_code == 200
    for name in ("rebound.example", "rebound.example:8000", "", "127.0.0.1.example"):
        assert http.get("/v1/users", headers={"Host": name}).status_code == 421


def test_where_a_token_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LINREC_TOKEN", raising=False)
    assert read_token(None) is None
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert read_token(path) == TOKEN
    monkeypatch.setenv("LINREC_TOKEN", "short")
    with pytest.raises(InputError, match="at least 16 printable"):
        read_token(None)
    with pytest.raises(InputError, match="cannot read the token"):
        read_token(tmp_path / "none")


def test_beyond_this_machine_only_with_a_token() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        check_exposure(host, None, False)
    for host in ("0.0.0.0", "10.0.0.1", "::", "example.org"):
        with pytest.raises(InputError, match="can be reached from other machines"):
            check_exposure(host, None, False)
        check_exposure(host, TOKEN, False)
        check_exposure(host, None, True)


# ----------------------------------------------------------------------------- when things go wrong


class Broken:
    """A store of which every call fails, once a server has read what all servers share."""

    shards = 1

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> object:
        def fail(*_: object) -> None:
            if name != "close":
                raise self._error

        shared = {"shared_version": lambda _: 0, "shared": lambda _: {}}
        return shared.get(name, fail)


@pytest.mark.parametrize(
    ("error", "status"),
    [(StoreError("the store is away"), 503), (StoreFullError("the disk is full"), 507)],
)
def test_a_store_that_fails(run: Path, error: Exception, status: int) -> None:
    with within(Engine(run, Broken(error))) as address, client(address) as http:  # type: ignore[arg-type]
        requested = {"user": "u", "events": [{"item": "i01"}]}
        for answer in (http.post("/v1/events", json=requested), http.get("/readyz")):
            assert answer.status_code == status
            assert answer.json() == {"error": str(error)}
        assert http.get("/healthz").status_code == 200
        # who needs no store is served
        assert http.post("/v1/recommendations", json={"history": ["i01"]}).status_code == 200


def test_a_defect_is_told_without_its_words(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(run, Broken(RuntimeError("user 42 likes secrets")))  # type: ignore[arg-type]
    with within(engine) as address, client(address) as http:
        answer = http.get("/v1/users/42")
    assert (answer.status_code, list(answer.json())) == (500, ["error"])
    records = [record for record in caplog.records if record.exc_info]
    for record in records:
        line = json.loads(JsonLines().format(record))
        assert line["error"] == "RuntimeError"
        assert "secrets" not in json.dumps(line)


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8"])
def test_a_slow_request_is_given_up(run: Path, make_engine: MakeEngine, kind: str) -> None:
    """By the hot route, and by the whole application, which reads the second kind."""
    engine = make_engine(run)
    engine.append = engine.append_many = lambda *_: time.sleep(1)  # type: ignore[method-assign,assignment,return-value]
    engine.enqueue_appends = lambda *_: None  # type: ignore[method-assign]
    with within(engine, timeout=0.2) as address, client(address) as http:
        body = b'{"user": "u", "events": [{"item": "i01"}]}'
        answer = http.post("/v1/events", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 503
        assert "may still be carried out" in answer.json()["error"]
        assert_alive(http)


def test_logs_hold_no_ids(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="linrec.serving")
    logging.getLogger("linrec.serving").propagate = True
    with within(Engine(run, open_store("memory"))) as address, client(address) as http:
        http.post("/v1/events", json={"user": "secret-user", "events": [{"item": "secret-item"}]})
        http.get("/v1/users/secret-user?search=secret-too")
        http.post("/v1/events", content=b'{"user": "secret-user"')
    lines = [JsonLines().format(record) for record in caplog.records]
    requests = [json.loads(line) for line in lines if '"route"' in line]
    assert [line["route"] for line in requests[:2]] == ["/v1/events", "/v1/users/{user}"]
    assert not [line for line in lines if "secret" in line]


def test_a_new_model_while_requests_come(
    run: Path, other_run: Path, store: Store, make_engine: MakeEngine
) -> None:
    """No request fails, and every list is one that one of the two models gives."""
    engine = make_engine(run, store)
    for user in range(4):
        engine.append(str(user), [])
    failures: list[str] = []
    answered = [0]
    over = threading.Event()

    def ask(user: int, address: str) -> None:
        with client(address) as http:
            place = 0
            while not over.is_set():
                event = {"item": f"i{place % 16:02d}", "id": f"{user}-{place}"}
                for path, body in (
                    ("/v1/events", {"user": user, "events": [event]}),
                    ("/v1/recommendations", {"user": user, "k": 3}),
                ):
                    answer = http.post(path, json=body)
                    if answer.status_code != 200:
                        failures.append(answer.text)
                    answered[0] += 1
                place += 1

    with within(engine) as address:
        threads = [threading.Thread(target=ask, args=(user, address)) for user in range(4)]
        for thread in threads:
            thread.start()
        for turn in range(6):
            before, until = answered[0], time.monotonic() + 30
            while answered[0] < before + 8 and time.monotonic() < until:
                time.sleep(0.01)
            assert engine.reload(run if turn % 2 else other_run)
        over.set()
        for thread in threads:
            thread.join()
        assert failures == []
        for user in range(4):
            history = [event.item for event in store.history(str(user))]
            assert history == [f"i{n % 16:02d}" for n in range(len(history))]


def test_users_of_a_dataset(
    run: Path, data: SequenceStore, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(run, store)
    engine.append("100", [])
    assert import_histories(data, store, 1000) == (data.n_users, 0)
    assert import_histories(data, store, 1000) == (0, 0)
    row = int(data.users.index_of([103])[0])
    kept = [event.item for event in store.history("103")]
    assert kept == data.catalogue.ids_of(data.sequences()[row]).to_list()
    assert engine.recommend("103").source == "model"


def test_the_run_folder_is_watched(data: SequenceStore, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", data)
    engine = Engine(run, open_store("memory"))
    first = engine.model.fingerprint
    with within(engine, watch=0.1, token=TOKEN) as address, client(address) as http:
        http.headers["Authorization"] = f"Bearer {TOKEN}"
        whole = (run / "model.safetensors").read_bytes()
        (run / "model.safetensors").write_bytes(whole[:100])
        refused = http.post("/v1/reload")
        assert refused.status_code == 400
        assert "truncated or corrupt" in refused.json()["error"]
        assert engine.model.fingerprint == first
        make_run(run, data, seed=5)
        until = time.monotonic() + 60
        while engine.model.fingerprint == first:
            assert time.monotonic() < until, "the new run was not seen"
            time.sleep(0.02)
        assert post(http, "/v1/recommendations", history=["i01"])["source"] == "model"
