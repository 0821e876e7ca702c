"""Browsers, strict bodies and guesses of the token."""

from __future__ import annotations

import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from linrec.serving import Engine, NewEvent, Store, open_store
from linrec.serving.http import access
from linrec.serving.stores import sqlite_files
from tests.serving.cases import events
from tests.serving.serving_process import client, within

TOKEN = "a-token-of-some-length"
JSON = {"Content-Type": "application/json"}
BODY = b'{"user": "u", "events": [{"item": "i01"}]}'


@pytest.fixture(scope="module")
def url(run: Path) -> Iterator[str]:
    with within(Engine(run, open_store("memory"))) as address:
        yield address


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with client(url) as opened:
        yield opened


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_only_json_is_read(http: httpx.Client, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    response = http.post("/v1/events", content=BODY, headers=headers)
    assert response.status_code == 415
    assert "Content-Type: application/json" in response.json()["error"]
    for right in ("application/json", "application/json; charset=utf-8"):
        sent = http.post("/v1/events", content=BODY, headers={"Content-Type": right})
        assert sent.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost:1"}, {"Sec-Fetch-Site": "same-site"},
    ],
)  # fmt: skip
def test_pages_of_other_sites_change_nothing(http: httpx.Client, headers: dict[str, str]) -> None:
    for method, path in (("POST", "/v1/events"), ("DELETE", "/v1/users/u"), ("POST", "/v1/reload")):
        body = BODY if path == "/v1/events" else b""
        response = http.request(method, path, content=body, headers={**JSON, **headers})
        assert response.status_code == 403
        assert "another site" in response.json()["error"]
    assert http.get("/healthz", headers=headers).status_code == 200


def test_our_own_page_may_send(http: httpx.Client, url: str) -> None:
    own = {**JSON, "Origin": url, "Sec-Fetch-Site": "same-origin"}
    assert http.post("/v1/events", content=BODY, headers=own).status_code == 200


def test_every_response_has_the_headers(http: httpx.Client, url: str) -> None:
    for path in ("/", "/docs", "/openapi.json", "/nowhere", "/v1/users", "/page/page.js"):
        found = http.get(path).headers
        assert "default-src 'none'" in found["content-security-policy"]
        assert found["x-frame-options"] == "DENY"
        assert found["x-content-type-options"] == "nosniff"
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as raw:
        raw.sendall(b"nonsense\r\n\r\n")
        assert b"X-Frame-Options: DENY" in raw.recv(4096)


def test_the_docs_load_nothing_from_elsewhere(http: httpx.Client) -> None:
    page = http.get("/docs").text
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page
    for path in http.get("/openapi.json").json()["paths"]:
        assert path in page
    assert "keep_seen" in page
    assert http.get("/page/docs.css").status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/events", b'{"user": "u", "events": [{"item": "i01", "time": true}]}'),
        ("/v1/events", b'{"user": "u", "events": [{"item": "i01", "time": "1"}]}'),
        ("/v1/recommendations", b'{"user": "u", "k": true}'),
        ("/v1/recommendations", b'{"user": "u", "k": "3"}'),
        ("/v1/recommendations", b'{"user": "u", "k": 3.0}'),
        ("/v1/recommendations", b'{"user": "u", "keep_seen": 1}'),
        ("/v1/recommendations", b'{"user": "u", "user": "v"}'),
        ("/v1/events", b'{"user": "u", "events": [{"item": "i01", "item": "i02"}]}'),
    ],
)
def test_values_of_another_type_and_keys_sent_twice(
    http: httpx.Client, path: str, body: bytes
) -> None:
    response = http.post(path, content=body, headers=JSON)
    assert response.status_code == 422
    assert list(response.json()) == ["error"]


def test_an_integer_is_a_time(http: httpx.Client) -> None:
    body = {"user": "whole", "events": [{"item": "i01", "time": 5}]}
    assert http.post("/v1/events", json=body).status_code == 200


def test_late_events_older_than_all_that_is_kept(
    run: Path, store: Store, make_engine: Callable[..., Engine]
) -> None:
    engine = make_engine(run, store, keep_events=3)
    engine.append("u", events("i01", "i02", "i03", first=10))
    done = engine.append("u", [NewEvent("i09", 1.0, "old")])
    assert (done.appended, done.duplicates, done.too_old, done.events) == (0, 0, 1, 3)
    assert engine.user("u").state == "current"  # nothing has changed
    done = engine.append("u", [NewEvent("i08", 2.0), NewEvent("i07", 10.5), NewEvent("i06", 20.0)])
    # of six, the oldest three are not kept: 2.0, 10.0 and 10.5
    assert (done.appended, done.too_old, done.events) == (1, 2, 3)
    assert [event.item for event in store.history("u")] == ["i02", "i03", "i06"]
    with within(make_engine(run, store, keep_events=3)) as url, client(url) as http:
        body = {"user": "u", "events": [{"item": "i01", "time": 0.5}]}
        assert http.post("/v1/events", json=body).json() == {
            "user": "u", "appended": 0, "duplicates": 0, "events": 3, "too_old": 1
        }  # fmt: skip


def test_guesses_of_the_token_are_braked(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "FREE_ATTEMPTS", 2)
    with within(Engine(run, open_store("memory")), token=TOKEN) as url, client(url) as http:
        for _ in range(2):
            assert http.get("/v1/users").status_code == 401
        begin = time.monotonic()
        assert http.get("/v1/users", headers={"Authorization": "Bearer x"}).status_code == 401
        assert time.monotonic() - begin >= access.BRAKE_SECONDS
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert http.get("/v1/users", headers=right).status_code == 200


def test_the_files_of_a_store_are_private(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "users.sqlite"))
    store.users("", 1)
    names = {path.name for path in tmp_path.iterdir()}
    assert "users.sqlite" in names
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    store.close()


def test_a_disk_that_is_nearly_full_is_not_ready(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        within(Engine(run, open_store(str(tmp_path / "users.sqlite")))) as url,
        client(url) as http,
    ):
        assert http.get("/readyz").status_code == 200
        monkeypatch.setattr(sqlite_files, "MIN_FREE", 2**62)
        response = http.get("/readyz")
        assert response.status_code == 507
        assert "MiB left" in response.json()["error"]


def test_a_model_without_finite_scores_is_not_ready(run: Path) -> None:
    engine = Engine(run, open_store("memory"))
    engine.model.vectors = engine.model.vectors * float("nan")
    with within(engine) as url, client(url) as http:
        response = http.get("/readyz")
        assert response.status_code == 503
        assert "not finite" in response.json()["error"]
