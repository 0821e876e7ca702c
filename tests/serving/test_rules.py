"""Named rules, items that are switched off, limits per category, events that are not kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import polars as pl
import pytest

import linrec
from linrec.data.dataset.store import SequenceStore
from linrec.serving import Engine, NewEvent, Store, UnknownError, open_store
from linrec.serving import rules as rules_module
from linrec.serving.categories import CategoryLimit, within_limits
from linrec.serving.rules import Rule
from linrec.types import InputError
from tests.serving.cases import assert_same_scores, events, make_run, scores
from tests.serving.serving_process import client, within

MakeEngine = Callable[..., Engine]
GENRES = ("Drama", "Comedy", "Drama|War")  # by the number of the item


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 24 items with genres, and whether they are in stock."""
    folder = tmp_path_factory.mktemp("shop")
    rows = [(f"u{u}", f"i{(u + n) % 24:02}", n) for u in range(24) for n in range(6)]
    pl.DataFrame(rows, schema=["user", "item", "time"], orient="row").write_csv(
        folder / "events.csv"
    )
    items = [(f"i{n:02}", GENRES[n % 3], n % 2 == 0) for n in range(24)]
    table = pl.DataFrame(items, schema=["item", "genre", "in_stock"], orient="row")
    table.write_parquet(folder / "items.parquet")
    linrec.prepare(
        folder / "events.csv", items=folder / "items.parquet", out=folder / "data",
        min_user_events=1, min_item_events=1,
    )  # fmt: skip
    return make_run(folder / "run", SequenceStore.open(folder / "data"))


def genres(item: str) -> list[str]:
    return GENRES[int(item[1:]) % 3].split("|")


def test_a_rule_is_what_its_filters_are(shop: Path, store: Store, make_engine: MakeEngine) -> None:
    engine = make_engine(shop, store)
    where = {"genre": ["Comedy"], "in_stock": True}
    engine.rules.put_rule("family", Rule(where=where, exclude=["i04"]), engine.model)
    by_name = engine.recommend(history=["i01"], k=24, rules=["family"])
    by_hand = engine.recommend(history=["i01"], k=24, where=where, exclude=["i04"])
    assert by_name.items == by_hand.items
    assert {each.item for each in by_name.items} == {"i10", "i16", "i22"}
    off = engine.recommend(history=["i01"], k=24, where={"in_stock": False})
    assert all(int(each.item[1:]) % 2 for each in off.items)
    assert len(off.items) == 11
    with pytest.raises(UnknownError, match="there is no rule 'nobody'"):
        engine.recommend(history=["i01"], rules=["nobody"])
    with pytest.raises(InputError, match="no item feature 'colour'"):
        engine.rules.put_rule("bad", Rule(where={"colour": ["red"]}), engine.model)
    assert list(engine.rules.rules()) == ["family"]
    assert engine.rules.delete_rule("family")
    assert not engine.rules.delete_rule("family")


def test_another_server_sees_changes_within_the_bound(
    shop: Path, store: Store, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(rules_module, "monotonic", lambda: clock[0])
    one, other = make_engine(shop, store), make_engine(shop, store)
    best = other.recommend(history=["i01"], k=1).items[0].item
    one.rules.switch(off=[best, "unknown"])
    one.rules.put_rule("r", Rule(only=["i05"]), one.model)
    assert one.recommend(history=["i01"], k=1).items[0].item != best
    clock[0] += rules_module.REFRESH_SECONDS
    found = other.recommend(history=["i01"], k=24)
    assert best not in {each.item for each in found.items}
    assert best not in {each.item for each in other.similar("i01", 24)}
    assert [each.item for each in other.recommend(history=["i01"], rules=["r"]).items] == ["i05"]
    one.rules.switch(on=[best])
    clock[0] += rules_module.REFRESH_SECONDS
    assert other.recommend(history=["i01"], k=1).items[0].item == best
    assert other.rules.off() == ["unknown"]


def test_rules_and_availability_survive_a_restart(shop: Path, tmp_path: Path) -> None:
    for attempt in range(2):
        engine = Engine(shop, open_store(str(tmp_path / "u.sqlite")))
        if attempt == 0:
            engine.rules.switch(off=["i03"])
            engine.rules.put_rule("r", Rule(max_per={"genre": 1}), engine.model)
        assert engine.rules.off() == ["i03"]
        assert engine.rules.rules()["r"].max_per == {"genre": 1}
        engine.close()


def test_nothing_is_shown_where_everything_is_off(shop: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(shop)
    engine.rules.switch(off=engine.model.ids)
    response = engine.recommend(history=["i01"])
    assert response.items == ()
    assert "no item passes the filters" in response.notes[0]


def test_an_approximate_search_leaves_them_out(shop: Path, make_engine: MakeEngine) -> None:
    pytest.importorskip("faiss")
    exact, engine = make_engine(shop), make_engine(shop, ann_from=1)
    for each in (exact, engine):
        each.rules.switch(off=["i02", "i07"])
    found = {each.item for each in engine.recommend(history=["i01"], k=24).items}
    assert found == {each.item for each in exact.recommend(history=["i01"], k=24).items}
    assert found.isdisjoint(["i02", "i07"])


@pytest.mark.parametrize("k", [1, 4, 10, 24])
def test_at_most_n_per_category(shop: Path, make_engine: MakeEngine, k: int) -> None:
    engine = make_engine(shop)
    everything = engine.recommend(history=["i01"], k=24).items
    response = engine.recommend(history=["i01"], k=k, max_per={"genre": 2})
    counts: Counter[str] = Counter()
    expected = []
    for each in everything:  # the slow twin: one after the other
        own = genres(each.item)
        if len(expected) < k and all(counts[genre] < 2 for genre in own):
            counts.update(own)
            expected.append(each)
    assert list(response.items) == expected
    assert response.notes == ("at most 2 per genre",)
    with pytest.raises(InputError, match="no item feature 'colour' with categories"):
        engine.recommend(history=["i01"], max_per={"colour": 1})


def test_items_without_a_category_are_not_limited() -> None:
    limit = CategoryLimit("genre", 1, pl.Series(["a", None, "a", None]))
    ranked = [(1, 4.0), (2, 3.0), (3, 2.0), (4, 1.0)]
    assert within_limits(ranked, [limit], 9) == [(1, 4.0), (2, 3.0), (4, 1.0)]


@pytest.mark.parametrize(
    "settings", [{}, {"time_gaps": True}, {"attention": "softmax"}], ids=["state", "time", "none"]
)
@pytest.mark.parametrize("before", [(), ("i01", "i02", "i03")], ids=["new user", "known user"])
def test_then_is_as_if_the_events_had_been_appended(
    data: SequenceStore, tmp_path: Path, make_engine: MakeEngine, settings: dict[str, object],
    before: tuple[str, ...],
) -> None:  # fmt: skip
    engine = make_engine(make_run(tmp_path / "run", data, **settings))
    for user in ("kept", "asked"):
        if before:
            engine.append(user, events(*before))
    engine.append("kept", [NewEvent("i07", 50.0), NewEvent("i08", 100.0)])
    kept = engine.recommend("kept", 1000, at=100.0)
    asked = engine.recommend("asked", 1000, at=100.0, then=[("i07", 50.0), "i08"])
    assert asked.source == "model"
    assert_same_scores(
        {each.item: each.score for each in asked.items},
        {each.item: each.score for each in kept.items},
    )
    if before:
        assert engine.user("asked").events == len(before)
        assert set(scores(engine, "asked")) >= {"i07", "i08"}
    else:
        with pytest.raises(UnknownError):
            engine.user("asked")
    with pytest.raises(InputError, match="comes after the events of a user"):
        engine.recommend(history=["i01"], then=["i02"])


def test_a_stored_user_with_more_events_as_of_a_time_in_one_call(
    data: SequenceStore, tmp_path: Path
) -> None:
    """Over HTTP, by a model for which the time of the request matters."""
    engine = Engine(make_run(tmp_path / "run", data, time_gaps=True), open_store("memory"))
    engine.append("u", events("i01", "i02"))
    with within(engine) as url, client(url) as http:
        found = {}
        for at in (60.0, 1e6):
            body = {"user": "u", "then": [{"item": "i07", "time": 50.0}], "at": at, "k": 1000}
            response = http.post("/v1/recommendations", json=body).json()
            found[at] = {each["item"]: each["score"] for each in response["items"]}
        history = [("i01", 0.0), ("i02", 1.0), ("i07", 50.0)]
        for at, listed in found.items():
            offline = engine.recommend(history=history, at=at, k=1000)
            assert_same_scores(listed, {each.item: each.score for each in offline.items})
        assert found[60.0] != found[1e6]
        assert http.get("/v1/users/u").json()["events"] == 2


def test_then_of_a_state_that_has_to_be_rebuilt(
    run: Path, other_run: Path, make_engine: MakeEngine
) -> None:
    store = open_store("memory")
    make_engine(other_run, store).append("u", events("i01", "i02"))
    engine = make_engine(run, store)
    found = engine.recommend("u", 1000, then=["i03"])
    again = engine.recommend(history=["i01", "i02", "i03"], k=1000)
    assert_same_scores(
        {each.item: each.score for each in found.items},
        {each.item: each.score for each in again.items},
    )


@pytest.fixture(scope="module")
def http(shop: Path) -> Iterator[httpx.Client]:
    with within(Engine(shop, open_store("memory"))) as url, client(url) as asking:
        yield asking


def test_over_http(http: httpx.Client) -> None:
    rule = {"where": {"genre": "Comedy", "in_stock": True}, "max_per": {"genre": 2}}
    stored = http.put("/v1/rules/half%20price%2Fcomedy", json=rule).json()
    assert stored["where"] == {"genre": ["Comedy"], "in_stock": [True]}
    assert list(http.get("/v1/rules").json()["rules"]) == ["half price/comedy"]
    body = {"history": ["i01"], "rules": ["half price/comedy"]}
    found = http.post("/v1/recommendations", json=body).json()
    assert len(found["items"]) == 2
    assert found["notes"] == ["at most 2 per genre"]
    switched = http.post("/v1/items/availability", json={"off": [found["items"][0]["item"], "x"]})
    assert len(switched.json()["off"]) == 2
    assert http.get("/v1/items/availability").json() == switched.json()
    again = http.post("/v1/recommendations", json=body).json()
    assert found["items"][0] not in again["items"]
    on = {"on": switched.json()["off"]}
    assert http.post("/v1/items/availability", json=on).json() == {"off": []}
    assert http.delete("/v1/rules/half%20price%2Fcomedy").json()["deleted"]
    refused = http.post("/v1/recommendations", json=body)
    assert (refused.status_code, refused.json()["error"]) == (
        404, "there is no rule 'half price/comedy'; see GET /v1/rules"
    )  # fmt: skip
    then = {"user": "new", "then": ["i01", {"item": "i02", "time": 5.0}], "at": 9.0, "k": 3}
    assert http.post("/v1/recommendations", json=then).json()["source"] == "model"
    assert http.get("/v1/users/new").status_code == 404
    bad = http.put("/v1/rules/r", json={"where": {"colour": ["red"]}})
    assert "no item feature 'colour'" in bad.json()["error"]
    bad = http.post("/v1/recommendations", json={"history": ["i1"], "where": {"genre": {}}})
    assert bad.status_code == 422
    bad = http.post("/v1/recommendations", json={"history": ["i1"], "then": ["i1"]})
    assert (bad.status_code, '"then"' in bad.json()["error"]) == (422, True)
