"""Event by event, the engine gives what a batch over whole histories gives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.recommender import load
from linrec.serving import (
    Engine,
    FutureEventError,
    LateEventError,
    NewEvent,
    RecommendRequest,
    Store,
    UnknownError,
    open_store,
)
from linrec.serving.stores import Change
from linrec.serving.stores.store import model_of
from linrec.types import InputError
from tests.serving.cases import (
    assert_rebuilt_is_the_same,
    assert_same_scores,
    events,
    make_run,
    scores,
)

MakeEngine = Callable[..., Engine]

WAYS = [
    {"attention": "linrec-decay"},
    {"attention": "linrec", "norm": "pre"},
    {"attention": "efficient"},
    {"backbone": "core"},
    {"attention": "softmax"},
    {"attention": "linrec", "max_length": 20},
    {"backbone": "bert4rec", "attention": "linrec"},
]


@pytest.fixture(scope="session")
def films(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> SequenceStore:
    source = shared_data / "ml-latest-small" / "ml-latest-small.inter.gz"
    return prepare(source, tmp_path_factory.mktemp("films") / "data")


@pytest.mark.parametrize("settings", WAYS, ids=lambda way: "-".join(map(str, way.values())))
def test_real_histories_event_by_event(
    settings: dict[str, object], films: SequenceStore, tmp_path: Path, make_engine: MakeEngine
) -> None:
    run = make_run(tmp_path / "run", films, **settings)
    engine = make_engine(run)
    assert engine.model.streams == (settings in WAYS[:4])
    users = films.users.ids[[0, 7, 100]].to_list()
    for user in users:
        row = int(films.users.index_of([user])[0])
        times = films.times[films.offsets[row] : films.offsets[row + 1]].tolist()
        items = films.catalogue.ids_of(films.sequences()[row]).to_list()
        for item, when in list(zip(items, times, strict=True))[-40:]:
            engine.append(str(user), [NewEvent(str(item), when)])
    recent = [
        [str(i) for i in films.catalogue.ids_of(films.sequences()[row][-40:])]
        for row in films.users.index_of(users)
    ]
    offline = load(run).recommend(recent, k=20).table
    for place, user in enumerate(users):
        expected = offline.filter(offline["user"] == place)
        found = engine.recommend(str(user), 20)
        assert found.source == "model"
        assert [item.item for item in found.items] == expected["item"].cast(str).to_list()
        np.testing.assert_allclose(
            [item.score for item in found.items], expected["score"], rtol=1e-3, atol=1e-4
        )


def test_appending_advances_the_state(run: Path, store: Store, make_engine: MakeEngine) -> None:
    engine = make_engine(run, store)
    first = engine.append("u", events("i03", "i04"))
    assert (first.appended, first.duplicates, first.events) == (2, 0, 2)
    before = scores(engine, "u")
    assert "i03" not in before
    assert len(before) == 14
    engine.append("u", events("i09", first=10))
    assert scores(engine, "u") != before
    assert engine.rebuilt == 0
    assert_rebuilt_is_the_same(engine, store, "u")
    assert engine.user("u").state == "current"


def test_many_users_at_once(run: Path, store: Store, make_engine: MakeEngine) -> None:
    """Rows of a batch have pasts and stretches of their own."""
    engine = make_engine(run, store, batch_size=16)
    rng = np.random.default_rng(0)

    def go(user: int) -> None:
        mine = np.random.default_rng(user)
        for place in range(6):
            items = [f"i{n:02d}" for n in mine.integers(0, 18, 1 + user % 3)]  # two are unknown
            engine.append(f"u{user}", events(*items, first=10.0 * place))

    threads = [threading.Thread(target=go, args=(user,)) for user in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del rng
    for user in range(8):
        assert engine.user(f"u{user}").events == 6 * (1 + user % 3)
        assert_rebuilt_is_the_same(engine, store, f"u{user}")
    assert engine.rebuilt == 0


def test_two_engines_on_one_user(run: Path, place: str, make_engine: MakeEngine) -> None:
    """Several servers: neither loses, doubles or outdates what the other wrote."""
    shared = open_store(place)
    stores = [shared, shared if place == "memory" else open_store(place)]
    engines = [make_engine(run, each) for each in stores]
    each = 15

    def go(name: int) -> None:
        for number in range(each):
            engines[name].append("u", [NewEvent(f"i{number:02d}", id=f"{name}-{number}")])
            engines[name].append("u", [NewEvent(f"i{number:02d}", id=f"{name}-{number}")])

    threads = [threading.Thread(target=go, args=(name,)) for name in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [event.id for event in stores[0].history("u")]
    assert sorted(kept, key=str) == sorted(f"{n}-{i}" for n in (0, 1) for i in range(each))
    for engine, opened in zip(engines, stores, strict=True):
        assert_rebuilt_is_the_same(engine, opened, "u")


def test_an_event_id_counts_once(run: Path, store: Store, make_engine: MakeEngine) -> None:
    engine = make_engine(run, store)
    given = [NewEvent("i01", 1.0, "a"), NewEvent("i02", 2.0, "b"), NewEvent("i01", 3.0, "a")]
    done = engine.append("u", given)
    assert (done.appended, done.duplicates, done.events) == (2, 1, 2)
    again = engine.append("u", [*given, NewEvent("i05", 4.0, "c")])
    assert (again.appended, again.duplicates, again.events) == (1, 3, 3)
    same = engine.append("u", given)
    assert (same.appended, same.duplicates, same.events) == (0, 3, 3)
    assert engine.append("v", given).appended == 2  # ids are a user's own
    assert [event.item for event in store.history("u")] == ["i01", "i02", "i05"]
    without = engine.append("u", [NewEvent("i01"), NewEvent("i01")])
    assert without.appended == 2  # without an id each is an event of its own
    assert_rebuilt_is_the_same(engine, store, "u")


def test_late_events_are_put_where_they_belong(
    run: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(run, store)
    engine.append("u", events("i01", "i02", first=100))
    engine.append("u", [NewEvent("i03", 50.0), NewEvent("i04", 200.0), NewEvent("i05", 100.5)])
    assert [event.item for event in store.history("u")] == ["i03", "i01", "i05", "i02", "i04"]
    assert engine.user("u").state == "stale"
    expected = engine.recommend(history=["i03", "i01", "i05", "i02", "i04"], k=50)
    assert_same_scores(scores(engine, "u"), {i.item: i.score for i in expected.items})
    assert engine.user("u").state == "current"
    assert engine.rebuilt == 1
    engine.append("u", [NewEvent("i06", 200.0)])  # as old as the newest is not late
    assert engine.user("u").state == "current"


def test_late_events_at_the_end_or_refused(run: Path, make_engine: MakeEngine) -> None:
    at_the_end = make_engine(run, late="append")
    at_the_end.append("u", events("i01", first=100))
    at_the_end.append("u", [NewEvent("i02", 5.0, "e")])
    view = at_the_end.user("u")
    assert [(e.item, e.time) for e, _ in view.history] == [("i01", 100.0), ("i02", 100.0)]
    assert view.state == "current"
    strict = make_engine(run, late="refuse")
    strict.append("u", [NewEvent("i01", 100.0, "e")])
    with pytest.raises(LateEventError, match="late events are refused"):
        strict.append("u", [NewEvent("i02", 200.0), NewEvent("i03", 99.0)])
    assert strict.append("u", [NewEvent("i01", 1.0, "e")]).duplicates == 1  # known, so not late
    assert strict.user("u").events == 1


def test_no_time_is_now_but_never_before_the_newest(run: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(run, late="refuse", max_future=1e13)
    engine.append("u", [NewEvent("i01", 9e12)])  # milliseconds, perhaps
    engine.append("u", [NewEvent("i02"), NewEvent("i03", 9.1e12), NewEvent("i04")])
    assert [e.item for e, _ in engine.user("u").history] == ["i01", "i02", "i03", "i04"]
    assert engine.append("v", [NewEvent("i01")]).appended == 1
    assert engine.user("v").history[0][0].time > 1.6e9


def test_times_far_in_the_future_are_refused(run: Path, make_engine: MakeEngine) -> None:
    engine, soon, far = make_engine(run), time.time() + 86_000, time.time() + 87_000
    refused = "more than 86,400 seconds ahead of this server's clock.*send seconds since 1970"
    with pytest.raises(FutureEventError, match=refused):
        engine.append("u", [NewEvent("i01", 5.0), NewEvent("i02", far)])
    assert engine.append("v", [NewEvent("i01", soon, "e1")]).appended == 1
    with pytest.raises(FutureEventError, match=refused):
        engine.correct_event("v", "e1", "i02", far)
    assert engine.append("v", [NewEvent("i01", far, "e1")]).duplicates == 1  # known already
    with pytest.raises(UnknownError):
        engine.user("u")  # none of the request was taken
    assert engine.append("v", [NewEvent("i02")]).appended == 1  # now, after the newest one
    assert make_engine(run, max_future=90_000).append("u", [NewEvent("i01", far)]).appended == 1


def test_unknown_items_are_remembered_and_skipped(
    run: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(run, store)
    engine.append("u", events("new", "i03", "newer", "i04"))
    engine.append("v", events("i03", "i04"))
    assert_same_scores(scores(engine, "u"), scores(engine, "v"))
    assert [event.item for event, _ in engine.user("u").history] == ["new", "i03", "newer", "i04"]
    engine.append("w", events("new"))
    assert engine.recommend("w").source == "cold-start"
    engine.append("w", events("i03", "i04", first=5))
    assert_same_scores(scores(engine, "w"), scores(engine, "v"))


def test_an_item_the_next_model_knows_counts_then(
    data: SequenceStore, tmp_path: Path, make_engine: MakeEngine, run: Path
) -> None:
    few = prepare(
        data.item_table.select("item").head(5).with_columns(user=1, time=0)
        .vstack(data.item_table.select("item").head(5).with_columns(user=2, time=0))
    )  # fmt: skip
    engine = make_engine(make_run(tmp_path / "few", few))
    engine.append("u", events("i01", "i12"))
    engine.append("v", events("i01"))
    assert_same_scores(scores(engine, "u"), scores(engine, "v"))
    assert engine.reload(run)
    assert_same_scores(
        scores(engine, "u"),
        {i.item: i.score for i in engine.recommend(history=["i01", "i12"], k=50).items},
    )


def test_who_is_unknown_gets_what_is_popular(
    run: Path, data: SequenceStore, make_engine: MakeEngine
) -> None:
    engine = make_engine(run)
    best = np.argsort(-data.popularity()[1:], kind="stable")[:4] + 1
    for found in (engine.recommend("nobody", 4), engine.recommend(history=[], k=4)):
        assert found.source == "cold-start"
        assert [item.item for item in found.items] == data.catalogue.ids_of(best).to_list()
        assert found.items[0].score == data.popularity().max()


def test_exclude_and_only(run: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(run)
    engine.append("u", events("i01", "i02"))
    everything = scores(engine, "u")
    left = engine.recommend("u", 50, exclude=["i05", "i06", "nonsense"])
    assert {i.item for i in left.items} == everything.keys() - {"i05", "i06"}
    chosen = engine.recommend("u", 50, only=["i05", "i01", "i07", "nonsense", "i05"])
    assert {i.item: i.score for i in chosen.items} == pytest.approx(
        {item: everything[item] for item in ("i05", "i07")}
    )
    assert engine.recommend("u", 5, only=["nonsense"]).items == ()
    assert engine.recommend("u", 5, only=["i05"], exclude=["i05"]).items == ()
    popular = engine.recommend("nobody", 5, only=["i05", "i06"], exclude=["i06"])
    assert [i.item for i in popular.items] == ["i05"]
    with_seen = engine.recommend("u", 50, seen="keep")
    assert len(with_seen.items) == 16


def test_batches_of_all_kinds(run: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(run)
    engine.append("u", events("i01", "i02"))
    requested = [
        RecommendRequest(user="u", k=3),
        RecommendRequest(history=["i01", "i02"], k=5),
        RecommendRequest(user="nobody", k=2),
        RecommendRequest(history=[], k=1),
        RecommendRequest(user="u", k=9, only=["i09"]),
    ]
    found = engine.recommend_many(requested)
    assert [len(each.items) for each in found] == [3, 5, 2, 1, 1]
    assert [each.source for each in found] == [
        "model",
        "model",
        "cold-start",
        "cold-start",
        "model",
    ]
    for one, other in zip(found[0].items, found[1].items[:3], strict=True):
        assert (one.item, one.title) == (other.item, other.title)
        assert one.score == pytest.approx(other.score, rel=1e-4, abs=1e-4)
    for ask, each in zip(requested, found, strict=True):
        alone = engine.recommend_many([ask])[0]
        assert [i.item for i in alone.items] == [i.item for i in each.items]


def test_wrong_questions(run: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(run)
    with pytest.raises(InputError, match="give one of user= and history="):
        engine.recommend()
    with pytest.raises(InputError, match="k must be at least 1"):
        engine.recommend("u", 0)
    with pytest.raises(UnknownError, match="no such user"):
        engine.user("nobody")
    with pytest.raises(UnknownError, match="does not know this item"):
        engine.similar("nonsense")
    with pytest.raises(UnknownError, match="nothing to explain"):
        engine.explain("i01", "nobody")
    with pytest.raises(InputError, match="late=maybe must be 'insert', 'append' or 'refuse'"):
        make_engine(run, late="maybe")


def test_only_so_many_events_are_kept(run: Path, store: Store, make_engine: MakeEngine) -> None:
    engine = make_engine(run, store, keep_events=3)
    done = engine.append("u", [NewEvent(f"i{n:02d}", n, f"e{n}") for n in range(5)])
    assert done.events == 3
    assert [e.item for e in store.history("u")] == ["i02", "i03", "i04"]
    assert engine.append("u", [NewEvent("i04", 4, "e4")]).duplicates == 1
    # the state has read all five, until it is rebuilt from what is kept
    assert "i00" not in scores(engine, "u")
    whole = {
        i.item: i.score
        for i in engine.recommend(history=[f"i{n:02d}" for n in range(5)], k=50).items
    }
    assert_same_scores(scores(engine, "u"), whole)


def test_a_new_model_rebuilds_states(
    run: Path, other_run: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(run, store)
    engine.append("u", events("i01", "i02"))
    engine.append("v", events("i05"))
    old = scores(engine, "u")
    assert engine.reload(other_run)
    assert not engine.reload()
    assert engine.user("u").state == "stale"
    assert engine.append("v", events("i06", first=10)).events == 2  # O(1): the state waits
    new = scores(engine, "u")
    assert new != old
    assert engine.user("u").state == "current"
    assert_rebuilt_is_the_same(engine, store, "u")
    assert_rebuilt_is_the_same(engine, store, "v")
    assert engine.rebuilt == 2


def test_a_run_that_cannot_be_read_changes_nothing(
    run: Path, make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_engine(run)
    with pytest.raises(InputError, match="is not a run"):
        engine.reload(tmp_path)
    assert engine.recommend("u").items


@pytest.mark.parametrize("damage", ["flipped", "short", "empty", "foreign"])
def test_a_damaged_state_is_made_anew_and_not_served(
    run: Path, store: Store, make_engine: MakeEngine, damage: str
) -> None:
    engine = make_engine(run, store)
    engine.append("u", events("i01", "i02", "i03"))
    good = scores(engine, "u")
    head = store.heads(["u"])[0]
    assert head is not None
    assert head.snapshot is not None
    whole = bytearray(head.snapshot)
    whole[60] ^= 64
    broken = {
        "flipped": bytes(whole), "short": head.snapshot[:-3],
        "empty": model_of(head.snapshot), "foreign": model_of(head.snapshot) + b"x" * 500,
    }[damage]  # fmt: skip
    assert store.commit([Change("u", head.version, (), broken, 100)]) == [True]
    assert engine.user("u").state == "stale"
    assert_same_scores(scores(engine, "u"), good)
    assert engine.rebuilt == 1


def test_forgetting(run: Path, store: Store, make_engine: MakeEngine) -> None:
    engine = make_engine(run, store)
    engine.append("u", [NewEvent("i01", 1.0, "e")])
    assert engine.forget("u")
    assert not engine.forget("u")
    assert engine.recommend("u").source == "cold-start"
    assert engine.append("u", [NewEvent("i02", 1.0, "e")]).appended == 1


@pytest.mark.parametrize("settings", [{}, {"attention": "softmax"}], ids=["state", "no state"])
def test_what_an_event_contributed(
    settings: dict[str, str], data: SequenceStore, tmp_path: Path, make_engine: MakeEngine
) -> None:
    """Leaving an event out is what it says, done by hand."""
    engine = make_engine(make_run(tmp_path / "run", data, **settings))
    items = [f"i{n % 16:02d}" for n in range(60)]
    engine.append("u", events(*items))
    message = engine.explain("i05", "u")
    assert [part.item for part in message.events] == items[-50:]

    def score(history: list[str]) -> float:
        return engine.recommend(history=history, k=1, only=["i05"], seen="keep").items[0].score

    assert message.score == pytest.approx(score(items), abs=1e-4)
    for place in (0, 20, 49):
        without = items[: 10 + place] + items[11 + place :]
        assert message.events[place].contribution == pytest.approx(
            score(items) - score(without), abs=2e-4
        )
    alone = engine.explain("i05", history=["i01"])
    assert alone.events[0].contribution == alone.score
    two = engine.explain("i05", history=["i01", "i02"])
    assert two.events[0].contribution == pytest.approx(
        score(["i01", "i02"]) - score(["i02"]), abs=1e-4
    )


def test_similar_items(run: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(run)
    found = engine.similar("i03", 50)
    assert len(found) == 15
    assert "i03" not in {item.item for item in found}
    vectors = engine.model.vectors.numpy()
    three, best = (vectors[engine.model.index(item) or 0] for item in ("i03", found[0].item))
    cosine = three @ best / np.linalg.norm(three) / np.linalg.norm(best)
    assert found[0].score == pytest.approx(cosine, abs=1e-5)
    assert found[0].score == max(item.score for item in found)


def test_search_finds_titles_and_ids(run: Path, make_engine: MakeEngine) -> None:
    model = make_engine(run).model
    found = model.search("film 1", 20)
    assert sorted(found) == [("i01", "Film 1"), *((f"i{n}", f"Film {n}") for n in range(10, 15))]
    assert model.search("rec]", 3) == [("i00", "[REC] (2007)")]
    assert model.search("i15", 3) == [("i15", "i15")]
    assert len(model.search("", 5)) == 5


def test_settings_are_checked(run: Path) -> None:
    from linrec.serving import EngineSettings

    with pytest.raises(InputError, match="keep_events=0 must be at least 1"):
        EngineSettings(keep_events=0)
    with pytest.raises(InputError, match="batch_wait=5 must be from 0 to 1"):
        replace(EngineSettings(), batch_wait=5)
    del run
