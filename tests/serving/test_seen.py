"""Seen items are served as the run says, unless a request says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.serving import Engine, RecommendRequest
from linrec.types import InputError
from tests.serving.cases import events, make_run
from tests.serving.serving_process import client, within

MakeEngine = Callable[..., Engine]
NOTE = "it learned nothing about their scores"
SEEN = {"i01", "i02"}


@pytest.fixture(scope="module")
def keeps(tmp_path_factory: pytest.TempPathFactory, data: SequenceStore) -> Path:
    return make_run(tmp_path_factory.mktemp("keeps") / "run", data, training={"seen": "keep"})


@pytest.fixture(scope="module")
def aware(tmp_path_factory: pytest.TempPathFactory, data: SequenceStore) -> Path:
    settings = {"seen": "hide", "seen_aware": True}
    return make_run(tmp_path_factory.mktemp("aware") / "run", data, training=settings)


def listed(engine: Engine, **request: Any) -> set[str]:
    return {item.item for item in engine.recommend(k=50, **request).items}


def test_the_run_says_unless_the_request_does(
    run: Path, keeps: Path, make_engine: MakeEngine
) -> None:
    """An older run, which says nothing, hides."""
    for folder, usual in ((run, "hide"), (keeps, "keep")):
        engine = make_engine(folder)
        engine.append("u", events("i01", "i02"))
        for who in ({"user": "u"}, {"history": ["i01", "i02"]}):
            shown = {seen: listed(engine, seen=seen, **who) for seen in ("hide", "keep", None)}
            assert shown["hide"] == shown["keep"] - SEEN
            assert shown["keep"] >= SEEN
            assert shown[None] == shown[usual]
        assert listed(engine, user="u", seen="keep", exclude=["i01"]) == shown["keep"] - {"i01"}


def test_the_server_says_unless_the_request_does(
    run: Path, keeps: Path, make_engine: MakeEngine
) -> None:
    """`serve --seen` replaces what the run was trained for, and a reload does not forget it."""
    for folder, other, usual in ((run, keeps, "keep"), (keeps, run, "hide")):
        engine = make_engine(folder, seen=usual)
        for _ in range(2):
            history = ["i01", "i02"]
            shown = {seen: listed(engine, history=history, seen=seen)
                     for seen in ("hide", "keep", None)}  # fmt: skip
            assert shown[None] == shown[usual] != shown["hide" if usual == "keep" else "keep"]
            assert engine.model.seen_in() == usual
            engine.reload(other)


def test_a_request_with_another_value_is_refused() -> None:
    with pytest.raises(InputError, match="seen=auto must be hide or keep"):
        RecommendRequest(user="u", seen="auto")  # type: ignore[arg-type]


def test_a_note_says_what_was_not_learned(run: Path, aware: Path, make_engine: MakeEngine) -> None:
    noted = {
        (folder, seen): engine.recommend(history=["i01"], seen=seen).notes
        for folder in (run, aware)
        for engine in [make_engine(folder)]
        for seen in ("hide", "keep", None)
    }
    (note,) = noted.pop((aware, "keep"))
    assert NOTE in note
    assert set(noted.values()) == {()}


def test_over_http(keeps: Path, make_engine: MakeEngine) -> None:
    with within(make_engine(keeps)) as url, client(url) as http:
        assert http.get("/healthz").json()["model"]["seen"] == "keep"
        assert shown(http) >= SEEN
        assert not SEEN & shown(http, seen="hide")
        assert not SEEN & shown(http, keep_seen=False)  # the earlier form
        assert shown(http, keep_seen=True) >= SEEN
        assert shown(http, seen=None, keep_seen=None) == shown(http)
        both = http.post("/v1/recommendations", json=body(seen="keep", keep_seen=True))
        assert both.status_code == 422
        assert "give only one of the two" in both.json()["error"]
        wrong = http.post("/v1/recommendations", json=body(seen="auto"))
        assert wrong.status_code == 422
        assert "seen" in wrong.json()["error"]


def test_the_note_over_http(aware: Path, make_engine: MakeEngine) -> None:
    with within(make_engine(aware)) as url, client(url) as http:
        batch = {"batch": [body(), body(seen="keep")]}
        plain, kept = http.post("/v1/recommendations", json=batch).json()["batch"]
        assert plain["notes"] == []
        assert NOTE in kept["notes"][0]


def body(**rest: object) -> dict[str, object]:
    return {"history": ["i01", "i02"], "k": 50, **rest}


def shown(http: httpx.Client, **rest: object) -> set[str]:
    answer = http.post("/v1/recommendations", json=body(**rest))
    assert answer.status_code == 200, answer.text
    assert answer.json()["notes"] == []
    return {item["item"] for item in answer.json()["items"]}
