"""A server takes the context of each event, keeps it with it, and reads it as training did."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from linrec.data.dataset.context import given_codes
from linrec.data.dataset.item_features import Field
from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.runs.run import Run
from linrec.scoring import item_scores
from linrec.serving import Engine, NewEvent, Store, open_store
from linrec.serving.bulk import import_histories
from linrec.serving.contexts import context_of, context_text
from linrec.serving.maintenance import export_users, import_users
from linrec.serving.stores import Change, Event
from linrec.serving.stores.sqlite_schema import event_checksum
from linrec.types import InputError
from tests.serving.cases import assert_same_scores, make_run, scores
from tests.serving.serving_process import client, within

MakeEngine = Callable[..., Engine]
FIELDS = (
    Field("type", "categorical", values=("buy", "view")),
    Field("price", "numeric", bounds=(1.0, 5.0)),
)
CONTEXTS: list[dict[str, Any] | None] = [
    {"type": "view"},
    {"type": "buy", "price": 3},
    None,
    {"type": "rent", "price": 9.5, "colour": "red"},
    {"price": None},
]
EVENTS = [
    NewEvent(f"i{3 * place % 16:02d}", 1000.0 + 60 * place**2, f"e{place}", context)
    for place, context in enumerate(CONTEXTS)
]
KINDS = [
    {}, {"time_gaps": True}, {"backbone": "core", "time_gaps": True}, {"attention": "softmax"},
    {"backbone": "bert4rec", "attention": "linrec"},
]  # fmt: skip


@pytest.fixture(scope="module")
def context_run(tmp_path_factory: pytest.TempPathFactory, data: SequenceStore) -> Path:
    folder = tmp_path_factory.mktemp("context") / "run"
    return make_run(folder, data, context=FIELDS, time_gaps=True)


def offline(run: Path, events: list[NewEvent], at: float) -> dict[str, float]:
    """From the whole history at once."""
    opened = Run.open(run)
    model, ids = opened.load_model(), [str(item) for item in opened.catalogue.table["item"]]
    items = np.array([ids.index(event.item) + 1 for event in events], np.int32)
    rows = Sequences.of([items], [[event.time or 0.0 for event in events]], [at])
    codes = np.array([given_codes(FIELDS, event.context) for event in events], np.int32)
    rows = Sequences(rows.items, rows.starts, rows.ends, rows.times, rows.until, codes)
    found = item_scores(model.encode(rows), model.item_vectors(), model.item_bias())[0]
    return dict(zip(ids, found[1:].tolist(), strict=True))


def served(engine: Engine, at: float = 9e3, **who: Any) -> dict[str, float]:
    found = engine.recommend(k=1000, seen="keep", at=at, **who)
    return {item.item: item.score for item in found.items}


@pytest.mark.parametrize("kind", KINDS)
def test_event_by_event_is_the_whole_history(
    tmp_path: Path, data: SequenceStore, make_engine: MakeEngine, kind: dict[str, Any]
) -> None:
    run = make_run(tmp_path / "run", data, context=FIELDS, **kind)
    engine = make_engine(run)
    for event in EVENTS:
        engine.append("ann", [event])
    expected = offline(run, EVENTS, 9e3)
    assert_same_scores(served(engine, user="ann"), expected)
    history = [(event.item, event.time, event.context) for event in EVENTS]
    assert_same_scores(served(engine, history=history), expected)
    plain = [(event.item, event.time) for event in EVENTS]
    found = served(engine, history=plain)
    assert max(abs(found[item] - score) for item, score in expected.items()) > 1e-3


def test_a_state_rebuilt_from_any_store_is_the_same(
    place: str, context_run: Path, make_engine: MakeEngine
) -> None:
    first = make_engine(context_run, open_store(place))
    first.append("ann", EVENTS)
    before, store = served(first, user="ann"), first.store
    kept = store.history("ann")
    assert [context_of(event.context) for event in kept] == [
        {"type": "view"}, {"type": "buy", "price": 3}, {},
        {"type": "rent", "price": 9.5, "colour": "red"}, {},
    ]  # fmt: skip
    store.replace_event("ann", "e1", "i03", 1060.0)  # as it was: the state is rebuilt
    assert store.history("ann") == kept
    assert_same_scores(served(first, user="ann"), before)
    assert first.rebuilt == 1


def test_another_context_is_another_event(context_run: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(context_run)
    for user, kind in (("ann", "view"), ("bob", "buy"), ("cid", "rent"), ("dan", "lend")):
        engine.append(user, [NewEvent("i03", 1000.0, None, {"type": kind})])
    engine.append("eve", [NewEvent("i03", 1000.0)])
    found = {user: served(engine, user=user)["i05"] for user in ("ann", "bob", "cid", "dan", "eve")}
    assert found["cid"] == found["dan"]  # both unknown
    assert len(set(found.values())) == 4


def test_a_model_without_context_serves_events_that_have_one(
    run: Path, context_run: Path, make_engine: MakeEngine
) -> None:
    engine = make_engine(run)
    engine.append("ann", EVENTS)
    engine.append("bob", [NewEvent(event.item, event.time) for event in EVENTS])
    assert_same_scores(scores(engine, "ann"), scores(engine, "bob"))
    engine.reload(context_run)  # kept for the model that reads it
    assert_same_scores(served(engine, user="ann"), offline(context_run, EVENTS, 9e3))


def test_over_http(context_run: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(context_run)
    bodies = [
        {"item": e.item, "time": e.time, "id": e.id} | ({"context": e.context} if e.context else {})
        for e in EVENTS
    ]
    with within(engine) as address, client(address) as http:
        assert http.post("/v1/events", json={"user": "ann", "events": bodies}).json()["events"] == 5
        asked = {"user": "ann", "k": 16, "seen": "keep", "at": 9e3}
        listed = http.post("/v1/recommendations", json=asked).json()["items"]
        expected = offline(context_run, EVENTS, 9e3)
        assert_same_scores({each["item"]: each["score"] for each in listed}, expected)
        past = [{name: part for name, part in body.items() if name != "id"} for body in bodies]
        asked = {"history": past, "k": 16, "seen": "keep", "at": 9e3}
        listed = http.post("/v1/recommendations", json=asked).json()["items"]
        assert_same_scores({each["item"]: each["score"] for each in listed}, expected)
        assert http.get("/v1/users/ann").json()["history"][0]["context"] == {"type": "view"}
        for wrong in ({"type": ["view"]}, {"": 1}, {str(n): n for n in range(21)}, "view"):
            body: dict[str, Any] = {"user": "ann", "events": [{"item": "i01", "context": wrong}]}
            assert http.post("/v1/events", json=body).status_code in (400, 422)
            asked = {"history": [{"item": "i01", "context": wrong}]}
            assert http.post("/v1/recommendations", json=asked).status_code in (400, 422)


@pytest.mark.parametrize("value", [["view"], {"of": "view"}, "x" * 257])
def test_a_value_that_is_none_is_named(
    context_run: Path, make_engine: MakeEngine, value: object
) -> None:
    event = {"item": "i01", "context": {"type": value}}
    with within(make_engine(context_run)) as address, client(address) as http:
        answer = http.post("/v1/events", json={"user": "ann", "events": [event]})
        assert answer.status_code == 422
        sentence = "events.0.context.type: must be text of at most 256 characters, a finite number"
        assert sentence in answer.json()["error"]


def test_what_is_no_context_is_refused() -> None:
    assert context_text({"b": 1, "a": True}) == '{"a":true,"b":1}'
    assert context_text({}) is context_text({"a": None}) is context_text(None) is None
    for wrong in ({"a": [1]}, {"": 1}, {"a": float("nan")}, {"a": "x" * 5000}, {"a": "\ud800"}):
        with pytest.raises(InputError, match="context"):
            context_text(wrong)  # type: ignore[arg-type]


def test_exported_and_imported_again(tmp_path: Path, store: Store) -> None:
    engine_store = open_store("memory")
    events = [Event("i01", 1.0, "e", '{"type":"buy"}'), Event("i02", 2.0)]
    engine_store.commit([Change("ann", None, events, None, 10)])
    export_users(engine_store, tmp_path / "users.jsonl")
    import_users(store, tmp_path / "users.jsonl", 10)
    assert store.history("ann") == events


def test_a_dataset_is_imported_with_its_context(store: Store) -> None:
    frame = pl.DataFrame(
        {
            "user": ["ann"] * 3, "item": ["a", "b", "c"], "time": [1.0, 2.0, 3.0],
            "type": ["view", None, "buy"], "price": [2.0, 3.5, None],
        }
    )  # fmt: skip
    import_histories(prepare(frame, context="type,price"), store, 10)
    assert [context_of(event.context) for event in store.history("ann")] == [
        {"type": "view", "price": 2.0}, {"price": 3.5}, {"type": "buy"},
    ]  # fmt: skip


def test_a_file_of_the_format_before_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "users.sqlite"
    store = open_store(str(path))
    store.commit([Change("ann", None, [Event("i01", 1.0, "e")], None, 10)])
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE events DROP COLUMN context")
        connection.execute("PRAGMA user_version=2")
    connection.close()
    again = open_store(str(path))
    assert again.history("ann") == [Event("i01", 1.0, "e")]
    head = again.heads(["ann"])[0]
    assert head is not None
    new = Event("i02", 2.0, None, '{"type":"buy"}')
    again.commit([Change("ann", head.version, [new], None, 10)])
    assert again.history("ann")[1] == new
    again.close()
    assert event_checksum(1, 2.0, 3, "i", None) != event_checksum(1, 2.0, 3, "i", None, "{}")


@pytest.mark.parametrize("streams", [True, False])
def test_events_that_are_not_kept_have_context_too(
    tmp_path: Path, data: SequenceStore, make_engine: MakeEngine, streams: bool
) -> None:
    kind: dict[str, Any] = {} if streams else {"backbone": "bert4rec"}
    run = make_run(tmp_path / "run", data, context=FIELDS, **kind)
    engine = make_engine(run)
    assert engine.model.streams is streams
    half = len(EVENTS) // 2
    engine.append("ann", EVENTS[:half])
    then = [(event.item, event.time, event.context) for event in EVENTS[half:]]
    assert_same_scores(served(engine, user="ann", then=then), offline(run, EVENTS, 9e3))
    assert_same_scores(served(engine, user="new", then=then), offline(run, EVENTS[half:], 9e3))
    with pytest.raises(InputError, match="context"):
        engine.recommend("ann", then=[("i01", None, {"type": ["view"]})])  # type: ignore[dict-item]
