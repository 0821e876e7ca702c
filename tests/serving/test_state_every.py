"""The state of a user in memory is stored every few events; who reads it later catches up."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from linrec.serving import Engine, NewEvent, Store, StoreError, open_store
from linrec.serving.heads import FEW
from tests.serving.cases import assert_rebuilt_is_the_same, events, scores

MakeEngine = Callable[..., Engine]


def missing(store: Store, user: str) -> int:
    """Events that the stored state lacks."""
    head = store.heads([user])[0]
    assert head is not None
    return head.snapshots[0].missing


@pytest.mark.parametrize("every", [1, 3, 8])
def test_it_is_stored_every_few_events(
    run: Path, store: Store, make_engine: MakeEngine, every: int
) -> None:
    engine = make_engine(run, store, state_every=every)
    lacking = []
    for number in range(2 * every + 1):
        engine.append("u", [NewEvent(f"i{number % 15:02d}", float(number))])
        lacking.append(missing(store, "u"))
        assert engine.user("u").state == "current"
        assert_rebuilt_is_the_same(engine, store, "u")
    assert lacking == [number % every for number in range(2 * every + 1)]
    assert engine.rebuilt == 0


def test_who_has_it_not_in_memory_catches_up(
    run: Path, store: Store, make_engine: MakeEngine
) -> None:
    """After a restart: a reader stores nothing, and a writer stores the state again."""
    make_engine(run, store).append("u", events("i01"))
    first = make_engine(run, store)
    for number in range(5):
        first.append("u", [NewEvent(f"i{number + 2:02d}", 5.0 + number)])
    assert missing(store, "u") == 5
    reader, writer = make_engine(run, store), make_engine(run, store)
    head = store.heads(["u"])
    assert scores(reader, "u") == pytest.approx(scores(first, "u"), rel=1e-4, abs=1e-4)
    assert store.heads(["u"]) == head
    assert_rebuilt_is_the_same(reader, store, "u")
    writer.append("u", [NewEvent("i09", 20.0)])
    assert missing(store, "u") == 0
    for engine in (first, reader, writer):
        assert_rebuilt_is_the_same(engine, store, "u")
        assert engine.rebuilt == 0


def test_no_event_that_a_state_lacks_is_deleted(
    run: Path, store: Store, make_engine: MakeEngine
) -> None:
    """`keep_events` is smaller than `state_every`: what was dropped is in the state alone."""
    engine = make_engine(run, store, keep_events=3, state_every=8)
    whole = make_engine(run, state_every=1)
    for number in range(12):
        event = [NewEvent(f"i{number:02d}", float(number))]
        engine.append("u", event)
        whole.append("u", event)
        assert missing(store, "u") < 3
    expected = scores(whole, "u")
    for each in (engine, make_engine(run, store, keep_events=3)):
        assert scores(each, "u") == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert each.rebuilt == 0


def test_many_events_at_once_are_stored(run: Path, store: Store, make_engine: MakeEngine) -> None:
    engine = make_engine(run, store)
    engine.append("u", events("i01"))
    engine.append("u", events(*[f"i{n % 16:02d}" for n in range(2 * FEW)], first=9.0))
    assert missing(store, "u") == 0


def test_nothing_in_memory_means_every_event(
    run: Path, store: Store, make_engine: MakeEngine
) -> None:
    engine = make_engine(run, store, cache_mb=0)
    for number in range(4):
        engine.append("u", [NewEvent("i01", float(number))])
        assert missing(store, "u") == 0


def test_a_damaged_event_fails_its_own_user_only(
    run: Path, tmp_path: Path, make_engine: MakeEngine
) -> None:
    place = tmp_path / "users.sqlite"
    store = open_store(str(place))
    engine = make_engine(run, store)
    for user in "ab":
        for number in range(3):
            engine.append(user, [NewEvent("i01", float(number))])
    with sqlite3.connect(place) as behind:
        behind.execute("UPDATE events SET item = 'i02' WHERE number = 1 AND time = 2")
    behind.close()
    fresh = make_engine(run, store)
    with pytest.raises(StoreError, match="damaged records"):
        fresh.recommend("a")
    assert_rebuilt_is_the_same(fresh, store, "b")
