"""A model with a repeat head: counts grow event by event, and give what a whole history gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from linrec.data.dataset.half_lives import half_lives
from linrec.data.dataset.past_counts import ItemCounts
from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.evaluation.scorer import model_scorer
from linrec.runs.run import Run
from linrec.serving import Engine, NewEvent, Store, open_store
from linrec.serving.snapshot import FINGERPRINT, ROUND, Origin, Snapshot, pack, unpack
from tests.serving.cases import make_run

MakeEngine = Callable[..., Engine]
Timed = list[tuple[str, float]]

DAY = 86_400.0
HISTORY: Timed = [
    ("i03", 1000.0),
    ("i07", 1000.0),  # at the same time
    ("i03", 1004.5),
    ("i07", 4000.0),
    ("i12", 4000.0 + DAY),
    ("i03", 4000.0 + 9 * DAY),
    ("i02", 4000.0 + 90 * DAY),
]
WAITS = (0.0, 3600.0, 400 * DAY, -50.0, math.nan)  # before the newest event, and unknown
KINDS = [
    {"time_gaps": True},
    {"time_gaps": False},
    {"time_gaps": True, "backbone": "core"},
    {"time_gaps": True, "attention": "softmax"},
    {"time_gaps": False, "attention": "linrec", "max_length": 3},
]


def repeat_run(folder: Path, data: SequenceStore, **settings: object) -> Path:
    return make_run(folder, data, repeat_head="on", **settings)


def offline(run: Path, history: Timed, at: float) -> dict[str, float]:
    """The scores of all items as an evaluation computes them, from the whole history at once."""
    opened = Run.open(run)
    ids = [str(item) for item in opened.catalogue.table["item"]]
    items = np.array([ids.index(item) + 1 for item, _ in history], np.int32)
    rows = Sequences.of([items], [[when for _, when in history]], [at])
    with torch.inference_mode():
        scores = model_scorer(opened.load_model())(rows)[0]
    return dict(zip(ids, scores[1:].tolist(), strict=True))


def online(engine: Engine, user: str | None = None, **request: object) -> dict[str, float]:
    found = engine.recommend(user, 1000, seen="keep", **request)  # type: ignore[arg-type]
    assert found.source == "model"
    return {item.item: item.score for item in found.items}


def same(found: dict[str, float], expected: dict[str, float]) -> None:
    assert found.keys() == expected.keys()
    np.testing.assert_allclose(
        [found[item] for item in expected], list(expected.values()), rtol=1e-4, atol=1e-4
    )


def append(engine: Engine, user: str, *events: tuple[str, float]) -> None:
    engine.append(user, [NewEvent(item, when) for item, when in events])


@pytest.mark.parametrize("settings", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_event_by_event_is_what_an_evaluation_computes(
    settings: dict[str, object], data: SequenceStore, tmp_path: Path, make_engine: MakeEngine
) -> None:
    run = repeat_run(tmp_path / "run", data, **settings)
    engine = make_engine(run)
    for count, event in enumerate(HISTORY, start=1):
        append(engine, "u", event)
        for wait in WAITS:
            at = event[1] + wait
            request: object = "unknown" if math.isnan(at) else at
            same(online(engine, "u", at=request), offline(run, HISTORY[:count], at))
    assert engine.rebuilt == 0
    at = HISTORY[-1][1] + 60.0
    same(online(engine, history=HISTORY, at=at), offline(run, HISTORY, at))


def test_the_counts_change_the_list(data: SequenceStore, tmp_path: Path) -> None:
    """The same weights without the head give other scores to past items, and to no others."""
    run = repeat_run(tmp_path / "run", data)
    with_head = offline(run, HISTORY, math.nan)
    model = Run.open(run).load_model()
    assert model.repeat is not None
    model.repeat = None
    opened = Run.open(run)
    ids = [str(item) for item in opened.catalogue.table["item"]]
    items = np.array([ids.index(item) + 1 for item, _ in HISTORY], np.int32)
    with torch.inference_mode():
        plain = model_scorer(model)(Sequences.of([items]))[0, 1:].tolist()
    changed = {i for i, s in zip(ids, plain, strict=True) if abs(s - with_head[i]) > 1e-4}
    assert changed == {item for item, _ in HISTORY}


def test_all_stores_keep_the_counts(
    data: SequenceStore, tmp_path: Path, place: str, make_engine: MakeEngine
) -> None:
    """A second server reads what the first one wrote."""
    run = repeat_run(tmp_path / "run", data, time_gaps=True)
    store = open_store(place)
    engine = make_engine(run, store)
    append(engine, "u", *HISTORY[:4])
    if place != "memory":
        engine.close()
        store = open_store(place)
        engine = make_engine(run, store)
    append(engine, "u", *HISTORY[4:])
    at = HISTORY[-1][1] + 5.0
    same(online(engine, "u", at=at), offline(run, HISTORY, at))
    assert engine.rebuilt == 0


def test_late_and_deleted_events_and_equal_times(
    data: SequenceStore, tmp_path: Path, store: Store, make_engine: MakeEngine
) -> None:
    run = repeat_run(tmp_path / "run", data, time_gaps=True)
    engine = make_engine(run, store)
    append(engine, "u", *HISTORY[:3], *HISTORY[4:])
    append(engine, "u", HISTORY[3])  # late
    at = HISTORY[-1][1] + 5.0
    same(online(engine, "u", at=at), offline(run, HISTORY, at))
    engine.append("u", [NewEvent("i12", HISTORY[-1][1], id="wrong")])
    engine.delete_event("u", "wrong")
    same(online(engine, "u", at=at), offline(run, HISTORY, at))


def test_explanations_sum_counts_too(
    data: SequenceStore, tmp_path: Path, make_engine: MakeEngine
) -> None:
    run = repeat_run(tmp_path / "run", data, time_gaps=True)
    engine = make_engine(run)
    append(engine, "u", *HISTORY)
    at = HISTORY[-1][1] + 5.0
    whole = offline(run, HISTORY, at)["i03"]
    for explanation in (
        engine.explain("i03", "u", at=at),
        engine.explain("i03", history=HISTORY, at=at),
    ):
        assert explanation.score == pytest.approx(whole, abs=1e-4)
        for left_out, part in enumerate(explanation.events):
            rest = HISTORY[:left_out] + HISTORY[left_out + 1 :]
            expected = whole - offline(run, rest, at)["i03"]
            assert part.contribution == pytest.approx(expected, abs=2e-4)


def test_long_histories_and_reloads(
    data: SequenceStore, tmp_path: Path, make_engine: MakeEngine
) -> None:
    """In stretches, and with a model that is replaced by one without a head and back."""
    run = repeat_run(tmp_path / "run", data, time_gaps=True)
    plain = make_run(tmp_path / "plain", data, time_gaps=True)
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(1e5, 600))
    history: Timed = [(f"i{n:02}", t) for n, t in zip(rng.integers(0, 9, 600), times, strict=True)]
    engine = make_engine(run)
    append(engine, "u", *history)
    at = history[-1][1] + 3600.0
    expected = offline(run, history, at)
    same(online(engine, "u", at=at), expected)
    same(online(engine, history=history, at=at), expected)
    assert engine.reload(plain)
    same(online(engine, "u", at=at), offline(plain, history, at))
    assert engine.reload(run)
    same(online(engine, "u", at=at), expected)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_counts_survive_their_bytes(count: int, timed: bool) -> None:
    rng = np.random.default_rng(0)
    items, times = rng.integers(1, 30, count), np.sort(rng.uniform(0, 1e9, count))
    times[::5] = math.nan
    counts = ItemCounts.none(timed).after(items, times)
    origin, fingerprint = Origin("v" * 16, count), b"f" * FINGERPRINT
    content = pack(Snapshot(b"state", counts.items, counts), origin, fingerprint, 100)
    found = unpack(content, origin, fingerprint, 5)
    assert found is not None
    assert found.state == b"state"
    assert found.counts is not None
    np.testing.assert_array_equal(found.seen, counts.items)
    for name in ("items", "places", "sums", "events", "newest"):
        np.testing.assert_array_equal(getattr(found.counts, name), getattr(counts, name))
    assert (found.counts.times is None) == (not timed)
    if counts.times is not None:
        np.testing.assert_array_equal(found.counts.times, counts.times)
    rows = len(counts.items) * (8 + 4 * half_lives(timed) + 8 * timed)
    assert len(content) < 100 + ROUND + rows


def test_the_approximate_index_ranks_past_items_exactly(
    tmp_path: Path, make_engine: MakeEngine
) -> None:
    pytest.importorskip("faiss")
    names = [f"n{number}" for number in range(1200)]
    rows = {"user": [1, 2] * 1200, "item": names * 2, "time": range(2400)}
    run = repeat_run(tmp_path / "run", prepare(pl.DataFrame(rows)))
    exact, near = make_engine(run), make_engine(run, ann_from=1000)
    rng = np.random.default_rng(0)
    for _ in range(10):
        history = [f"n{n}" for n in rng.integers(0, 1200, 20)]
        right = {i.item: i.score for i in exact.recommend(None, 1200, history=history,
                                                          seen="keep").items}  # fmt: skip
        found = near.recommend(None, 10, history=history, seen="keep").items
        assert len(found) == 10
        assert all(item.score == pytest.approx(right[item.item], abs=1e-3) for item in found)
        best = list(right)[:10]
        assert {i for i in best if i in history} == {i.item for i in found if i.item in history}
        hidden = near.recommend(None, 10, history=history).items
        assert not {item.item for item in hidden} & set(history)
