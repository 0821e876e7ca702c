"""Two servers on one store: no event is lost, and no state lacks what the other one stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from linrec.serving import Engine, NewEvent, Store, open_store
from linrec.serving.snapshot import Origin, Snapshot, pack, unpack
from linrec.serving.stores import Change, Head
from tests.serving.cases import assert_rebuilt_is_the_same, events, scores

MakeEngine = Callable[..., Engine]
USERS, EVENTS = 150, 2


class Overtaken:
    """A store whose first commit comes after another writer's."""

    def __init__(self, store: Store, other_writer: Callable[[], None]) -> None:
        self._store, self._other_writer = store, other_writer

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def commit(self, changes: Sequence[Change]) -> list[bool]:
        first, self._other_writer = self._other_writer, lambda: None
        first()
        return self._store.commit(changes)


@pytest.mark.parametrize("before", [(), ("i01", "i02")], ids=["new user", "known user"])
def test_an_event_that_lost_the_race_and_is_late(
    run: Path, store: Store, make_engine: MakeEngine, before: tuple[str, ...]
) -> None:
    other = make_engine(run, store)
    if before:
        other.append("u", events(*before))
    overtaken = Overtaken(store, lambda: other.append("u", [NewEvent("i09", 500.0)]) and None)
    slow = make_engine(run, overtaken)
    slow.append("u", [NewEvent("i05", 400.0)])
    assert [event.item for event in store.history("u")] == [*before, "i05", "i09"]
    assert other.user("u").state == "stale"
    assert "i09" not in scores(other, "u")
    assert_rebuilt_is_the_same(other, store, "u")


def test_a_race_that_leaves_an_unreadable_head(
    run: Path, other_run: Path, store: Store, make_engine: MakeEngine
) -> None:
    """The other server serves another model, whose state this one cannot continue."""
    other = make_engine(other_run, store)
    overtaken = Overtaken(store, lambda: other.append("u", [NewEvent("i09", 300.0)]) and None)
    slow = make_engine(run, overtaken)
    slow.append("u", [NewEvent("i05", 400.0)])
    assert slow.user("u").state == "stale"
    assert_rebuilt_is_the_same(slow, store, "u")


@pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("redis", marks=pytest.mark.service)], indirect=True
)
def test_a_storm(run: Path, place: str, make_engine: MakeEngine) -> None:
    """Both servers append to the same user at the same time; one of the events is late."""
    stores = [open_store(place), open_store(place)]
    engines = [make_engine(run, store) for store in stores]

    together = threading.Barrier(len(engines))

    def send(server: int) -> None:
        for user in range(USERS):
            engines[server].append(f"u{user}", events("i00", "i01"))
            for number in range(EVENTS):
                item, time = f"i{2 + 2 * number + server:02d}", 10.0 * number + 10 - server
                together.wait()
                engines[server].append(f"u{user}", [NewEvent(item, time)])

    threads = [threading.Thread(target=send, args=(server,)) for server in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for user in range(USERS):
        assert len(stores[0].history(f"u{user}")) == 2 * (2 + EVENTS)
        for engine, store in zip(engines, stores, strict=True):
            assert_rebuilt_is_the_same(engine, store, f"u{user}")


def test_a_snapshot_of_another_history_is_rebuilt(
    run: Path, store: Store, make_engine: MakeEngine
) -> None:
    """Whoever wrote it: the reader compares version and number of events with the head."""
    engine = make_engine(run, store)
    engine.append("u", events("i01"))
    old = _head(store)
    engine.append("u", events("i02", first=5))
    new = _head(store)
    assert store.commit([Change("u", new.version, (), old.snapshot, 100)]) == [True]
    assert engine.user("u").state == "stale"
    assert "i02" not in scores(engine, "u")
    assert engine.rebuilt == 1
    assert engine.user("u").state == "current"


def test_what_a_snapshot_is_compared_with() -> None:
    snapshot, print_ = Snapshot(b"state", np.array([1, 5], np.int64)), b"f" * 16
    origin = Origin("0123456789abcdef", 7)
    content = pack(snapshot, origin, print_, 1000)
    read = unpack(content, origin, print_, 5)
    assert read is not None
    assert (read.state, read.seen.tolist()) == (b"state", [1, 5])
    assert unpack(content, Origin("0123456789abcdef", 8), print_, 5) is None
    assert unpack(content, Origin("f123456789abcdef", 7), print_, 5) is None
    assert unpack(content, origin, b"g" * 16, 5) is None
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 64
        assert unpack(bytes(damaged), origin, print_, 5) is None
    assert unpack(None, origin, print_, 5) is None


def _head(store: Store) -> Head:
    head = store.heads(["u"])[0]
    assert head is not None
    return head
