"""A model that reads time: event by event, at any request time, what batch encoding gives."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.store import SequenceStore
from linrec.runs.run import Run
from linrec.scoring import item_scores
from linrec.serving import Engine, NewEvent, RecommendRequest, Store, open_store
from linrec.serving.past import HistoryEvent, RequestTime
from linrec.types import InputError
from tests.serving.cases import make_run
from tests.serving.serving_process import client, within

MakeEngine = Callable[..., Engine]
Timed = list[tuple[str, float]]

DAY = 86_400.0
HISTORY: Timed = [
    ("i03", 1000.0),
    ("i07", 1000.0),  # at the same time
    ("i01", 1004.5),
    ("i07", 4000.0),
    ("i12", 4000.0 + DAY),
    ("i02", 4000.0 + 90 * DAY),
]
WAITS = (0.0, 1.0, 3600.0, 400 * DAY, -50.0, math.nan)  # before the newest event, and unknown
KINDS = [
    {"attention": "linrec-decay"},
    {"attention": "efficient", "norm": "pre"},
    {"backbone": "core"},
    {"attention": "softmax"},
    {"attention": "linrec", "max_length": 4},
    {"backbone": "bert4rec", "attention": "linrec"},
]


@pytest.fixture(scope="module")
def timed_run(tmp_path_factory: pytest.TempPathFactory, data: SequenceStore) -> Path:
    return make_run(tmp_path_factory.mktemp("timed") / "run", data, time_gaps=True)


def offline(run: Path, history: Timed, at: float) -> dict[str, float]:
    """The scores of all items, from the whole history at once."""
    opened = Run.open(run)
    model = opened.load_model()
    ids = [str(item) for item in opened.catalogue.table["item"]]
    items = np.array([ids.index(item) + 1 for item, _ in history], np.int32)
    rows = Sequences.of([items], [[when for _, when in history]], [at])
    scores = item_scores(model.encode(rows), model.item_vectors(), model.item_bias())[0]
    return dict(zip(ids, scores[1:].tolist(), strict=True))


def online(
    engine: Engine,
    user: str | None = None,
    history: Sequence[HistoryEvent] | None = None,
    at: RequestTime = None,
) -> dict[str, float]:
    found = engine.recommend(user, 1000, history=history, seen="keep", at=at)
    assert found.source == "model"
    return {item.item: item.score for item in found.items}


def same(found: dict[str, float], expected: dict[str, float]) -> None:
    assert found.keys() == expected.keys()
    np.testing.assert_allclose(
        [found[item] for item in expected], list(expected.values()), rtol=1e-4, atol=1e-4
    )


def append(engine: Engine, user: str, *events: tuple[str, float]) -> None:
    engine.append(user, [NewEvent(item, when) for item, when in events])


def test_event_by_event_is_the_whole_history(
    timed_run: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(timed_run, store)
    for count, event in enumerate(HISTORY, start=1):
        append(engine, "u", event)
        for wait in WAITS:
            at = event[1] + wait
            same(online(engine, "u", at=at), offline(timed_run, HISTORY[:count], at))
    assert engine.rebuilt == 0
    soon, later = (online(engine, "u", at=HISTORY[-1][1] + wait) for wait in (1.0, 1e6))
    assert soon != pytest.approx(later, abs=1e-2)


@pytest.mark.parametrize("settings", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_every_kind_of_model(
    settings: dict[str, object], data: SequenceStore, tmp_path: Path, make_engine: MakeEngine
) -> None:
    run = make_run(tmp_path / "run", data, time_gaps=True, **settings)
    engine = make_engine(run)
    assert engine.model.reads_time
    assert engine.model.streams == (settings in KINDS[:3])
    for event in HISTORY:
        append(engine, "u", event)
    for wait in WAITS:
        at = HISTORY[-1][1] + wait
        expected = offline(run, HISTORY, at)
        same(online(engine, "u", at=at), expected)
        same(online(engine, history=HISTORY, at=at), expected)


def test_unknown_is_a_request_time(timed_run: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(timed_run)
    append(engine, "u", *HISTORY)
    expected = offline(timed_run, HISTORY, math.nan)
    same(online(engine, "u", at="unknown"), expected)
    same(online(engine, "u", at=HISTORY[-1][1] - 1.0), expected)  # before the newest event
    untimed = offline(timed_run, [(item, math.nan) for item, _ in HISTORY], math.nan)
    same(online(engine, history=[item for item, _ in HISTORY]), untimed)
    same(online(engine, history=[(item, None) for item, _ in HISTORY]), untimed)


def test_left_out_it_is_now(
    timed_run: Path, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(timed_run)
    now = HISTORY[-1][1] + 7200.0
    append(engine, "u", *HISTORY)
    monkeypatch.setattr("linrec.serving.past.time", lambda: now)
    same(online(engine, "u"), offline(timed_run, HISTORY, now))


def test_a_late_event_is_read_at_its_time(
    timed_run: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(timed_run, store)
    early, late = HISTORY[:3] + HISTORY[4:], HISTORY[3]
    append(engine, "u", *early)
    append(engine, "u", late)
    at = HISTORY[-1][1] + 60.0
    same(online(engine, "u", at=at), offline(timed_run, HISTORY, at))
    assert engine.rebuilt == 1
    append(engine, "u", ("i09", at))  # the rebuilt state has an open event too
    same(online(engine, "u", at=at + 5), offline(timed_run, [*HISTORY, ("i09", at)], at + 5))
    assert engine.rebuilt == 1


def test_a_restart_between_events(timed_run: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "users.sqlite")
    for count, event in enumerate(HISTORY, start=1):
        engine = Engine(timed_run, open_store(place))
        append(engine, "u", event)
        at = event[1] + 60.0
        same(online(engine, "u", at=at), offline(timed_run, HISTORY[:count], at))
        assert engine.rebuilt == 0
        engine.close()


def test_each_request_of_a_batch_has_its_own_time(
    timed_run: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(timed_run, store)
    others: Timed = [("i05", 50.0), ("i06", 7e6)]
    append(engine, "u", *HISTORY)
    append(engine, "v", *others)
    moments: list[tuple[str, Timed, float]] = [
        ("u", HISTORY, HISTORY[-1][1] + 5.0),
        ("v", others, 7e6 + DAY),
        ("u", HISTORY, HISTORY[-1][1] + 9 * DAY),
    ]
    requests = [RecommendRequest(user=user, k=1000, seen="keep", at=at) for user, _, at in moments]
    history = RecommendRequest(history=others, k=1000, seen="keep", at="unknown")
    *found, given = engine.recommend_many([*requests, history])
    for response, (_, events, at) in zip(found, moments, strict=True):
        expected = offline(timed_run, events, at)
        same({item.item: item.score for item in response.items}, expected)
    same({i.item: i.score for i in given.items}, offline(timed_run, others, math.nan))


def test_long_histories_in_stretches(timed_run: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(timed_run)
    rng = np.random.default_rng(0)
    clock = np.cumsum(np.exp(rng.normal(4, 4, 600))).tolist()
    events: Timed = [(f"i{rng.integers(16):02d}", when) for when in clock]
    append(engine, "u", *events)
    at = clock[-1] + 100.0
    expected = offline(timed_run, events, at)
    same(online(engine, "u", at=at), expected)
    same(online(engine, history=events, at=at), expected)


@pytest.mark.parametrize("settings", [{}, {"attention": "softmax"}], ids=["state", "no state"])
def test_an_explanation_leaves_events_out_with_their_times(
    settings: dict[str, str], data: SequenceStore, tmp_path: Path, make_engine: MakeEngine
) -> None:
    run = make_run(tmp_path / "run", data, time_gaps=True, **settings)
    engine = make_engine(run)
    append(engine, "u", *HISTORY)
    at = HISTORY[-1][1] + 300.0
    explained = engine.explain("i05", "u", at=at)
    whole = offline(run, HISTORY, at)["i05"]
    assert explained.score == pytest.approx(whole, abs=1e-4)
    for position, part in enumerate(explained.events):
        without = HISTORY[:position] + HISTORY[position + 1 :]
        assert part.contribution == pytest.approx(
            whole - offline(run, without, at)["i05"], abs=2e-4
        )
    given = engine.explain("i05", history=HISTORY, at=at)
    assert given.score == pytest.approx(explained.score, abs=1e-4)


def test_without_time_neither_events_nor_requests_have_one(
    run: Path, make_engine: MakeEngine
) -> None:
    engine = make_engine(run)
    assert not engine.model.reads_time
    append(engine, "u", *HISTORY)
    expected = offline(run, HISTORY, math.nan)
    for at in (None, "unknown", 5.0, HISTORY[-1][1] + DAY):
        same(online(engine, "u", at=at), expected)
        same(online(engine, history=HISTORY, at=at), expected)


@pytest.mark.parametrize("at", ["noon", math.inf])
def test_a_wrong_request_time(run: Path, make_engine: MakeEngine, at: object) -> None:
    engine = make_engine(run)
    with pytest.raises(InputError, match="at= must be a number of seconds, unknown, or left out"):
        engine.recommend("u", at=at)  # type: ignore[arg-type]


def test_over_http(timed_run: Path) -> None:
    with within(Engine(timed_run, open_store("memory"))) as url, client(url) as http:
        assert http.get("/healthz").json()["model"]["reads_time"] is True
        events = [{"item": item, "time": when} for item, when in HISTORY]
        http.post("/v1/events", json={"user": "u", "events": events})
        at = HISTORY[-1][1] + 60.0

        def scores(**body: object) -> dict[str, float]:
            requested = {"k": 1000, "keep_seen": True, **body}
            found = http.post("/v1/recommendations", json=requested).json()["items"]
            return {item["item"]: item["score"] for item in found}

        expected = offline(timed_run, HISTORY, at)
        same(scores(user="u", at=at), expected)
        same(scores(history=events, at=at), expected)
        same(scores(user="u", at="unknown"), offline(timed_run, HISTORY, math.nan))
        mixed = [*events[:-1], HISTORY[-1][0]]
        same(
            scores(history=mixed, at=at),
            offline(timed_run, [*HISTORY[:-1], (HISTORY[-1][0], math.nan)], at),
        )
        same(scores(user="u", at=None), offline(timed_run, HISTORY, time.time()))
        explained = http.post("/v1/explanations", json={"user": "u", "item": "i05", "at": at})
        assert explained.json()["score"] == pytest.approx(expected["i05"], abs=1e-4)
