"""Items that came after the training: placed by vectors or features, durable, followed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import linrec
from linrec.data.dataset.store import SequenceStore
from linrec.runs.extending import NEIGHBOURS
from linrec.runs.run import Run
from linrec.serving import Engine, NewItem, Store, open_store
from linrec.serving import added as added_module
from linrec.types import InputError
from tests.serving.cases import assert_same_scores, events, make_run, scores
from tests.serving.serving_process import client, within

MakeEngine = Callable[..., Engine]
N, WIDTH = 24, 6
RNG = np.random.default_rng(5)
VECTORS = RNG.normal(size=(N + 2, WIDTH)).astype(np.float32)
NEW, LATER = "i24", "i25"
SETTINGS = {"recipe": "small", "epochs": 1, "seen": "hide", "repeat_head": "off"}


def log() -> pl.DataFrame:
    rows = [(f"u{u}", f"i{(u + n) % N:02}", n) for u in range(N) for n in range(6)]
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


def prepared(folder: Path, n_vectors: int = N) -> SequenceStore:
    """n_vectors: how many items have a vector; those after the first 24 have no events."""
    ids = [f"i{n:02}" for n in range(n_vectors)]
    return linrec.prepare(
        log(), folder, item_vectors=(ids, VECTORS[:n_vectors]), min_user_events=1,
        min_item_events=1,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that reads vectors."""
    folder = tmp_path_factory.mktemp("vectors")
    linrec.Recommender(**SETTINGS).fit(prepared(folder / "data"), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def featured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without vectors whose items have features."""
    folder = tmp_path_factory.mktemp("features")
    rows = [(f"i{n:02}", ["Drama", "War"][n % 2], float(n)) for n in range(N)]
    items = pl.DataFrame(rows, schema=["item", "genre", "price"], orient="row")
    data = linrec.prepare(
        log(), folder / "data", items=items, min_user_events=1, min_item_events=1,
        feature_kinds={"genre": "categorical", "price": "numeric"},
    )  # fmt: skip
    return make_run(folder / "run", data)


def new_item(name: str = NEW, **more: Any) -> NewItem:
    return NewItem(name, tuple(VECTORS[int(name[1:])].tolist()), **more)


def test_placed_as_an_item_that_the_data_had_without_events(
    run: Path, store: Store, make_engine: MakeEngine, tmp_path: Path
) -> None:
    """The slow twin: the same weights in a run whose dataset had the item's vector."""
    before = Run.open(run)
    data = prepared(tmp_path / "data", N + 1)
    twin = linrec.Recommender(start=run).fit(data, tmp_path / "twin")
    weights = before.load_model().state_dict()
    state = twin.model.state_dict()
    for name, value in weights.items():
        state[name] = value if value.shape == state[name].shape else state[name]
    state["item.weight"][: N + 1] = weights["item.weight"]
    state["item.weight"][N + 1] = 0.0
    twin.model.load_state_dict(state)
    twin.save(tmp_path / "same")
    expected = make_engine(tmp_path / "same", open_store("memory"))
    engine = make_engine(run, store)
    engine.add_items([new_item()])
    for history in (["i01", "i02"], ["i05", NEW], [NEW]):
        served, whole = (each.recommend(history=history, k=99) for each in (engine, expected))
        assert_same_scores(
            {each.item: each.score for each in served.items},
            {each.item: each.score for each in whole.items},
        )


def test_other_items_keep_their_scores(run: Path, store: Store, make_engine: MakeEngine) -> None:
    engine = make_engine(run, store)
    engine.append("ann", events("i01", "i02"))
    before = scores(engine, "ann")
    engine.add_items([new_item(title="A new one")])
    after = scores(engine, "ann")
    assert set(after) - set(before) == {NEW}
    assert_same_scores({item: after[item] for item in before}, before)
    assert engine.model.title(NEW) == "A new one"
    assert ("i24", "A new one") in engine.model.search("new", 5)
    assert NEW in {each.item for each in engine.similar("i01", k=99)}


def test_filtered_switched_off_and_appended(
    run: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(run, store)
    engine.append("ann", events("i01", NEW))  # not known yet, and kept
    before = scores(engine, "ann")
    engine.add_items([new_item()])
    assert [each.item for each in engine.recommend("bob", k=9, only=[NEW]).items] == [NEW]
    engine.rules.switch(off=[NEW])
    assert NEW not in scores(engine, "bob")
    engine.rules.switch(on=[NEW])
    known = scores(engine, "ann")  # rebuilt with the event that had been left out
    assert NEW not in known  # seen
    assert known != pytest.approx({item: before[item] for item in known})
    again = engine.recommend(history=["i01", NEW], k=99)
    assert_same_scores(known, {each.item: each.score for each in again.items})
    engine.append("cem", events(NEW))
    assert engine.recommend("cem").source == "model"
    assert engine.explain("i03", "cem").events[0].item == NEW


def test_survives_a_restart_and_is_taken_over_by_a_model_that_knows_it(
    run: Path, store: Store, make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_engine(run, store)
    engine.add_items([new_item(), new_item(LATER)])
    expected = {each.item: each.score for each in engine.recommend(history=["i01"], k=99).items}
    again = make_engine(run, store)
    found = {each.item: each.score for each in again.recommend(history=["i01"], k=99).items}
    assert NEW in found
    assert found == expected
    data = prepared(tmp_path / "data", N + 1)
    linrec.Recommender(**SETTINGS, seed=3).fit(data, tmp_path / "newer")
    assert engine.reload(tmp_path / "newer")
    assert engine.model.n_items == N + 2  # one of its own, one that was added
    assert engine.model.base.index(NEW) is not None
    listed = engine.added.listed(engine.model)
    assert [each.item for each in listed] == [NEW, LATER]
    assert "knows the item 'i24' already" in (listed[0].problem or "")
    assert listed[1].problem is None
    assert engine.reload(run)  # which does not know it
    assert engine.model.n_items == N + 2


def test_a_model_that_cannot_place_it_is_served_without_it(
    run: Path, featured: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(run, store)
    engine.add_items([new_item()])
    assert engine.reload(featured)
    assert engine.model.n_items == N
    (listed,) = engine.added.listed(engine.model)
    assert "the run reads none" in (listed.problem or "")


def test_another_server_follows(
    run: Path, store: Store, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(added_module, "monotonic", lambda: clock[0])
    one, other = make_engine(run, store), make_engine(run, store)
    one.add_items([new_item()])
    assert one.model.n_items == N + 1
    assert other.model.n_items == N
    clock[0] += added_module.REFRESH_SECONDS
    deadline = time.monotonic() + 30
    while other.model.n_items == N and time.monotonic() < deadline:
        time.sleep(0.01)
    assert other.model.key == one.model.key
    one.append("ann", events("i01", NEW))
    assert other.user("ann").state == "current"
    assert one.remove_item(NEW)
    assert not one.remove_item(NEW)
    assert one.model is one.model.base


def test_sent_again_it_is_replaced(run: Path, store: Store, make_engine: MakeEngine) -> None:
    engine = make_engine(run, store)
    engine.add_items([new_item()])
    key, before = engine.model.key, scores(engine, "nobody")
    engine.add_items([new_item()])
    assert engine.model.key == key
    assert before == scores(engine, "nobody")
    engine.add_items([NewItem(NEW, tuple((-VECTORS[N]).tolist()))])
    assert engine.model.key != key
    assert engine.model.n_items == N + 1


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (NewItem("i01", tuple(VECTORS[1].tolist())), "the run knows the item 'i01' already"),
        (NewItem("x", (1.0, 2.0)), "has a vector of 2 numbers, and those of the run have 6"),
        (NewItem("x"), "has no vector, by which this run places new items; give 6 numbers"),
        (NewItem("x", (float("nan"),) * 6), "a number that is not finite"),
        (NewItem("x", (0.0,) * 6), "its vector is zero"),
        (NewItem("x", (1.0,) * 6, features={"colour": "red"}), "no item feature 'colour'"),
        (NewItem("x", (1e20,) * 6), r"not finite or beyond 1e\+18"),
        (NewItem("a\nb", (1.0,) * 6), "control characters"),
        (new_item(), "'i24' is given more than once; send it once"),
    ],
)
def test_refused_in_one_sentence(
    item: NewItem, words: str, run: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(run, store)
    with pytest.raises(InputError, match=words):
        engine.add_items([new_item(), item])
    assert engine.added.listed(engine.model) == []  # all or none
    assert engine.model.n_items == N


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (NewItem("x", (1.0,)), "has a vector, and the run reads none"),
        (NewItem("x"), "has no features, by which this run places new items; give some of genre"),
        (NewItem("x", features={"genre": "Opera"}), "shares no feature with any item"),
        (NewItem("x", features={"price": "dear"}), "the feature 'price' cannot be 'dear'"),
        (
            NewItem("x", features={"genre": ["War", "Drama"]}),
            "has one value for each item .* not 2",
        ),
    ],
)
def test_refused_by_a_run_with_features(
    item: NewItem, words: str, featured: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(featured, store)
    with pytest.raises(InputError, match=words):
        engine.add_items([item])


def test_placed_at_the_mean_of_similar_items(
    featured: Path, store: Store, make_engine: MakeEngine
) -> None:
    """By their genre alone all items of it are alike: the first ten in the catalogue's order."""
    engine = make_engine(featured, store)
    engine.add_items([NewItem("war", features={"genre": "War"})])
    model, index = engine.model, engine.model.index
    assert model.vectors is not None
    war = list(range(1, N, 2))[:NEIGHBOURS]
    rows = sorted(number for each in war if (number := index(f"i{each:02}")) is not None)
    place = index("war")
    assert place is not None
    np.testing.assert_allclose(model.vectors[place], model.vectors[rows].mean(0), rtol=1e-4)
    shown = engine.recommend(history=["i00"], k=99, where={"genre": ["War"]})
    assert "war" in {each.item for each in shown.items}
    assert "war" in {each.item for each in engine.recommend(history=["unheard"], k=99).items}
    (note,) = engine.recommend(history=["war"], only=["war"]).notes
    assert note.startswith("the only item that may be recommended had been seen")
    diverse = engine.recommend(history=["i00"], k=5, diversity=0.8)
    assert len(diverse.items) == 5


def test_refused_where_nothing_places_it(
    store: Store, make_engine: MakeEngine, tmp_path: Path
) -> None:
    data = linrec.prepare(log(), tmp_path / "data", min_user_events=1, min_item_events=1)
    engine = make_engine(make_run(tmp_path / "run", data), store)
    with pytest.raises(InputError, match="reads no item vectors and its items have no features"):
        engine.add_items([NewItem("x", (1.0,))])
    linrec.Recommender(backbone="popularity").fit(data, tmp_path / "counts")
    engine.reload(tmp_path / "counts")
    with pytest.raises(InputError, match="a baseline counts events"):
        engine.add_items([NewItem("x", (1.0,))])


def test_not_too_many(
    run: Path, store: Store, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(added_module, "MAX_ADDED", 2)
    engine = make_engine(run, store)
    engine.add_items([new_item(), new_item(LATER)])
    with pytest.raises(InputError, match="more than 2 added items; train a model that knows"):
        engine.add_items([NewItem("x", (1.0,) * 6)])
    engine.add_items([new_item()])  # replaced, and not one more


def test_searched_approximately(run: Path, store: Store, make_engine: MakeEngine) -> None:
    pytest.importorskip("faiss")
    engine = make_engine(run, store, ann_from=1)
    engine.add_items([new_item()])
    exact = make_engine(run, store)
    for each in (engine, exact):
        assert NEW in {item.item for item in each.recommend(history=["i01"], k=N).items}


@pytest.mark.parametrize("backbone", ["sasrecf", "fdsa", "core", "bert4rec"])
def test_every_backbone_takes_items(
    backbone: str, store: Store, make_engine: MakeEngine, tmp_path: Path
) -> None:
    data = prepared(tmp_path / "data")
    linrec.Recommender(**SETTINGS, backbone=backbone).fit(data, tmp_path / "run")
    engine = make_engine(tmp_path / "run", store)
    before = {each.item: each.score for each in engine.recommend(history=["i01"], k=99).items}
    engine.add_items([new_item()])
    after = {each.item: each.score for each in engine.recommend(history=["i01"], k=99).items}
    assert set(after) - set(before) == {NEW}
    assert_same_scores({item: after[item] for item in before}, before)
    assert engine.recommend(history=["i01", NEW], k=3).items


def test_over_http(run: Path) -> None:
    vector = VECTORS[N].tolist()
    with within(Engine(run, open_store("memory"))) as url, client(url) as http:
        body = {"items": [{"item": NEW, "vector": vector, "title": "A new one"}]}
        answer = http.post("/v1/items", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"added": [NEW], "items": N + 1}
        shown = http.post("/v1/recommendations", json={"history": ["i01"], "only": [NEW]}).json()
        assert [(each["item"], each["title"]) for each in shown["items"]] == [(NEW, "A new one")]
        listed = http.get("/v1/items/added").json()
        assert listed == {"items": [{"item": NEW, "title": "A new one", "problem": None}]}
        short = http.post("/v1/items", json={"items": [{"item": "x", "vector": [1.0]}]})
        assert short.status_code == 400
        assert "a vector of 1 numbers, and those of the run have 6" in short.json()["error"]
        empty = http.post("/v1/items", json={"items": [{"item": "x", "features": {"a": None}}]})
        assert "items.0.features.a.0: must be text of at most 256" in empty.json()["error"]
        gone = http.delete(f"/v1/items/added/{NEW}")
        assert gone.json() == {"item": NEW, "removed": True}
        assert http.delete(f"/v1/items/added/{NEW}").json()["removed"] is False


def test_items_without_features_are_told_apart_by_vectors(
    run: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine, model = make_engine(run, store), linrec.load(run)
    lists = {}
    for each in (0.0, 0.8):
        served = engine.recommend(history=["i01", "i02"], k=8, diversity=each)
        offline = model.recommend([["i01", "i02"]], k=8, diversity=each)
        lists[each] = [item.item for item in served.items]
        assert lists[each] == offline.to_polars()["item"].to_list()
        assert served.notes == offline.notes
    assert lists[0.0] != lists[0.8]
    assert "by item vectors" in served.notes[0]
    evaluation = model.evaluate(diversity=0.8)
    assert evaluation.compared_by == ("item vectors",)
    assert "diversity@10" in evaluation.metrics
