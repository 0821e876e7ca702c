"""The hot routes respond as the whole application does, and leave everything unusual to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from linrec.serving import Engine, open_store
from linrec.serving.http.hot import HotRoutes
from tests.serving.serving_process import client, within

WHOLE = "application/json; charset=utf-8"  # is right, and more than the hot routes read
USER = {"user": "u"}
BODIES: list[tuple[str, Any]] = [
    ("/v1/events", {"user": 7, "events": [{"item": "i01", "time": 5, "id": "e"}, {"item": 3}]}),
    ("/v1/events", {"batch": [{"user": "a", "events": [{"item": "i01", "id": 1, "time": 9.5}]}]}),
    ("/v1/events", {"user": "u", "events": []}),
    ("/v1/events", {"user": "u", "events": [{"item": "i01", "time": 1e18}]}),
    ("/v1/events", {"user": "", "events": [{"item": "i01"}]}),
    ("/v1/recommendations", USER | {"k": 3, "at": 50.0}),
    ("/v1/recommendations", USER | {"at": "unknown", "seen": "keep"}),
    ("/v1/recommendations", {"user": "nobody", "k": 2}),
    ("/v1/recommendations", {"history": ["i01", {"item": "i02", "time": 4.0}], "exclude": ["i04"]}),
    ("/v1/recommendations", {"batch": [USER, {"history": [], "only": ["i03", "i99"]}]}),
    ("/v1/recommendations", {"user": "u", "where": {"no such feature": ["x"]}}),
    ("/v1/recommendations", {"user": "u", "history": []}),
    ("/v1/recommendations", {"user": "u", "k": 0}),
    ("/v1/recommendations", {"user": "u", "what": 1}),
    ("/v1/recommendations", {"history": ["i01"] * 300}),
]


@pytest.fixture(scope="module")
def http(run: Path) -> Iterator[httpx.Client]:
    engine = Engine(run, open_store("memory"))
    with within(engine) as address, client(address) as opened:
        opened.post("/v1/events", json={"user": "u", "events": [{"item": "i01", "time": 1.0}]})
        yield opened


def post(http: httpx.Client, path: str, body: Any, kind: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http.post(path, content=content, headers={"Content-Type": kind})


@pytest.mark.parametrize(("path", "body"), BODIES)
def test_responses_are_those_of_the_whole_application(
    http: httpx.Client, path: str, body: Any
) -> None:
    post(http, path, body, WHOLE)  # so that an append finds the same both times
    whole = post(http, path, body, WHOLE)
    hot = post(http, path, body, "application/json")
    assert hot.status_code == whole.status_code
    assert set(hot.headers) == set(whole.headers)
    if path == "/v1/events" and hot.is_success:
        for each in (hot, whole):
            assert each.json().get("batch", [each.json()])[0]["duplicates"] == 1
    else:
        assert hot.json() == whole.json()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b'{"user": "u", "user": "v", "k": 3}', b"[]", b"NaN"]
)
def test_what_is_wrong_gets_the_sentence_it_always_gets(http: httpx.Client, body: bytes) -> None:
    hot = post(http, "/v1/recommendations", body, "application/json")
    whole = post(http, "/v1/recommendations", body, WHOLE)
    assert (hot.status_code, hot.json()) == (whole.status_code, whole.json())
    assert hot.is_client_error


def test_both_ways_are_counted(run: Path) -> None:
    with within(Engine(run, open_store("memory"))) as address, client(address) as http:
        for kind in ("application/json", WHOLE):
            assert post(http, "/v1/recommendations", {"user": "u"}, kind).is_success
        metrics = http.get("/metrics").text
    assert 'linrec_requests_total{route="/v1/recommendations",status="200"} 2.0' in metrics
    assert 'linrec_recommendations_total{source="cold-start"} 2.0' in metrics


def test_the_usual_request_takes_the_hot_route(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a token too; a wrong one, a page of another site or another host does not."""
    taken = []
    original = HotRoutes._usual

    def usual(self: HotRoutes, scope: Any) -> bool:
        taken.append(original(self, scope))
        return taken[-1]

    monkeypatch.setattr(HotRoutes, "_usual", usual)
    token = "t" * 20
    with within(Engine(run, open_store("memory")), token=token) as address, client(address) as http:
        for headers, status in (
            ({"Authorization": f"Bearer {token}"}, 200),
            ({"Authorization": "Bearer wrong"}, 401),
            ({}, 401),
            ({"Authorization": f"Bearer {token}", "Origin": "http://elsewhere"}, 403),
        ):
            answer = http.post("/v1/recommendations", json={"user": "u"}, headers=headers)
            assert answer.status_code == status
    with within(Engine(run, open_store("memory"))) as address, client(address) as http:
        assert http.post("/v1/recommendations", json={"user": "u"}).status_code == 200
        plain = {"Host": "localhost"}  # without a port
        answer = http.post("/v1/recommendations", json={"user": "u"}, headers=plain)
        assert answer.status_code == 200
        foreign = {"Host": "elsewhere.example:80"}
        answer = http.post("/v1/recommendations", json={"user": "u"}, headers=foreign)
        assert answer.status_code == 421
    assert taken == [True, False, False, False, True, True, False]
