"""The cache of heads is bounded, and never the last word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linrec.serving import Engine, EngineSettings, LateEventError, NewEvent, Store, open_store
from linrec.serving.heads import OVERHEAD, HeadCache
from linrec.serving.stores import Change, Event, Head, MemoryStore, StoredSnapshot
from tests.serving.cases import assert_rebuilt_is_the_same, events, scores


def test_it_is_bounded_and_forgets_the_least_recently_used() -> None:
    cache = HeadCache(MemoryStore(), max_bytes=3 * (OVERHEAD + 200))
    for user in "abc":
        cache.put(user, Head("v", 1, 0.0, (StoredSnapshot("v", 1, 0, bytes(100)),)))
    assert cache.recent(["a"])[0] is not None
    cache.put("d", Head("v", 1, 0.0, (StoredSnapshot("v", 1, 0, bytes(100)),)))
    assert (len(cache), cache.recent(["b"])[0]) == (3, None)  # a was used, b was not
    cache.put("a", Head("v", 1, 0.0, (StoredSnapshot("v", 1, 0, bytes(10**6)),)))
    assert len(cache) == 2  # too large for it altogether


def test_versions(store: Store) -> None:
    store.commit([Change("a", None, [Event("i", 1.0)], None, 10, "v" * 16)])
    assert store.versions(["a", "b"]) == ["v" * 16, None]
    assert store.versions([]) == []


@pytest.mark.parametrize("cache_mb", [0, 16])
def test_two_engines_on_one_store_see_each_other(run: Path, tmp_path: Path, cache_mb: int) -> None:
    """Each has the user in memory while the other appends, corrects and forgets."""
    place, settings = str(tmp_path / "users.sqlite"), EngineSettings(cache_mb=cache_mb)
    one, two = (Engine(run, open_store(place), settings) for _ in range(2))
    for turn in range(6):
        writer, reader = (one, two) if turn % 2 else (two, one)
        item = f"i{turn:02d}"
        assert writer.append("u", [NewEvent(item, float(turn), item)]).events == turn + 1
        assert writer.append("u", [NewEvent(item, float(turn), item)]).duplicates == 1
        assert reader.append("u", [NewEvent(item, float(turn), item)]).duplicates == 1
        assert scores(reader, "u") == pytest.approx(scores(writer, "u"))
        assert_rebuilt_is_the_same(reader, reader.store, "u")
    one.correct_event("u", "i05", "i09")
    assert_rebuilt_is_the_same(two, two.store, "u")
    assert one.forget("u")
    assert two.recommend("u").source == "cold-start"
    assert two.append("u", events("i01")).events == 1
    one.close()
    two.close()


def test_a_refusal_rests_on_what_is_stored_now(run: Path, tmp_path: Path) -> None:
    """The newest event that one engine remembers was deleted at another."""
    place, settings = str(tmp_path / "users.sqlite"), EngineSettings(late="refuse")
    one, two = (Engine(run, open_store(place), settings) for _ in range(2))
    one.append("u", [NewEvent("i01", 1.0, "a"), NewEvent("i02", 9.0, "b")])
    with pytest.raises(LateEventError):
        one.append("u", [NewEvent("i03", 5.0)])
    assert two.delete_event("u", "b")
    assert one.append("u", [NewEvent("i03", 5.0)]).events == 2
    one.close()
    two.close()


def test_where_others_append_too_it_asks_first(run: Path, tmp_path: Path) -> None:
    """Two engines that append to the same users in turn commit in vain only at first."""
    place = str(tmp_path / "users.sqlite")
    one, two = (Engine(run, open_store(place)) for _ in range(2))
    vain: list[int] = []
    for engine in (one, two):
        commit = engine.store.commit

        def counted(changes: Any, commit: Any = commit) -> list[bool]:
            done: list[bool] = commit(changes)
            vain.append(done.count(False))
            return done

        engine.store.commit = counted  # type: ignore[method-assign]
    for turn in range(60):
        (one, two)[turn % 2].append("u", [NewEvent(f"i{turn % 15:02d}", float(turn), f"e{turn}")])
    assert sum(vain[:10]) > 0
    assert sum(vain[-30:]) == 0
    for engine in (one, two):
        assert engine.user("u").events == 60
        assert_rebuilt_is_the_same(engine, engine.store, "u")
        engine.close()
