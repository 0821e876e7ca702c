"""One protocol, the same behaviour in every store."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from linrec.serving import Store, StoreFullError, open_store
from linrec.serving.stores import Change, Event, SQLiteStore
from linrec.types import InputError

KEEP = 100


def put(store: Store, user: str, *events: Event, snapshot: bytes | None = None) -> bool:
    head = store.heads([user])[0]
    version = None if head is None else head.version
    return store.commit([Change(user, version, events, snapshot, KEEP)])[0]


def items(store: Store, user: str, newest: int | None = None) -> list[str]:
    return [event.item for event in store.history(user, newest)]


def test_what_is_put_is_there(store: Store) -> None:
    assert store.heads(["u", "v"]) == [None, None]
    assert store.history("u") == []
    given = (Event("a", 1.5), Event("b\u00e9", 2.5, "id 1"))
    assert put(store, "u", *given, snapshot=b"\0state\xff")
    assert store.history("u") == list(given)
    head, nobody = store.heads(["u", "v"])
    assert nobody is None
    assert head is not None
    assert (head.events, head.newest, head.snapshot) == (2, 2.5, b"\0state\xff")
    store.check()


def test_history_is_in_order_of_time_then_of_arrival(store: Store) -> None:
    put(store, "u", Event("a", 5.0), Event("b", 5.0))
    put(store, "u", Event("c", 5.0), Event("d", 7.0))
    put(store, "u", Event("early", -1.0), Event("e", 5.0))
    assert items(store, "u") == ["early", "a", "b", "c", "e", "d"]
    assert items(store, "u", 2) == ["e", "d"]
    head = store.heads(["u"])[0]
    assert head is not None
    assert head.newest == 7.0


def test_a_change_of_what_has_changed_is_refused(store: Store) -> None:
    put(store, "u", Event("a", 1.0))
    head = store.heads(["u"])[0]
    assert head is not None
    first = Change("u", head.version, [Event("b", 2.0)], None, KEEP)
    second = Change("u", head.version, [Event("c", 3.0)], b"wrong", KEEP)
    stranger = Change("v", None, [Event("d", 1.0)], None, KEEP)
    assert store.commit([first, second, stranger]) == [True, False, True]
    assert store.commit([Change("u", None, [Event("e", 4.0)], None, KEEP)]) == [False]
    assert store.commit([Change("w", "gone", [Event("e", 4.0)], None, KEEP)]) == [False]
    assert items(store, "u") == ["a", "b"]


def test_a_user_who_came_back_has_no_old_version(store: Store) -> None:
    put(store, "u", Event("a", 1.0))
    old = store.heads(["u"])[0]
    assert store.forget("u")
    put(store, "u", Event("b", 1.0))
    assert old is not None
    assert store.commit([Change("u", old.version, [], b"of a", KEEP)]) == [False]


def test_only_the_newest_are_kept_and_their_ids(store: Store) -> None:
    for place in range(7):
        head = store.heads(["u"])[0]
        version = None if head is None else head.version
        event = Event(f"i{place}", float(place), f"e{place}")
        assert store.commit([Change("u", version, [event], None, 3)]) == [True]
    assert items(store, "u") == ["i4", "i5", "i6"]
    requested = [("u", [f"e{place}" for place in range(7)]), ("nobody", ["e5"]), ("u", [])]
    assert store.known_ids(requested) == [{"e4", "e5", "e6"}, set(), set()]
    head = store.heads(["u"])[0]
    assert head is not None
    assert head.events == 3


def test_forgetting_leaves_nothing(store: Store) -> None:
    put(store, "u", Event("a", 1.0, "e1"), snapshot=b"s")
    put(store, "other", Event("a", 1.0, "e1"))
    assert store.forget("u")
    assert not store.forget("u")
    assert store.heads(["u"]) == [None]
    assert store.history("u") == []
    assert store.known_ids([("u", ["e1"]), ("other", ["e1"])]) == [set(), {"e1"}]
    assert store.users("", 10) == ["other"]


def test_users_are_found_by_how_they_begin(store: Store) -> None:
    for user in ("b", "a1", "a", "a\u4e2d", "aa%", "_"):
        put(store, user, Event("x", 1.0))
    assert store.users("a", 10) == ["a", "a1", "aa%", "a\u4e2d"]
    assert store.users("a", 2) == ["a", "a1"]
    assert store.users("%", 10) == []
    assert len(store.users("", 10)) == 6


def test_many_writers_lose_nothing(store: Store) -> None:
    writers, each = 4, 10

    def write(name: int) -> None:
        for place in range(each):
            while not put(store, "u", Event(f"{name}-{place}", 0.0)):
                pass

    threads = [threading.Thread(target=write, args=(name,)) for name in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(items(store, "u")) == sorted(
        f"{w}-{p}" for w in range(writers) for p in range(each)
    )


def test_hundreds_at_once(store: Store) -> None:
    users = [f"u{n}" for n in range(1200)]
    done = store.commit([Change(u, None, [Event("x", 1.0, "e")], None, KEEP) for u in users])
    assert all(done)
    assert sum(head is not None for head in store.heads(users)) == len(users)
    ids = [f"e{n}" for n in range(1200)] + ["e"]
    assert store.known_ids([("u7", ids)]) == [{"e"}]


def test_forgotten_bytes_are_off_the_disk(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "users.sqlite"))
    put(store, "someone", Event("a very private item", 1.0), snapshot=b"private state")
    store.forget("someone")
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    store.close()
    assert b"private" not in kept
    assert b"someone" not in kept


def limit_pages(store: SQLiteStore, more: int) -> None:
    with store._reading() as connection:  # alone, so it is the one that will write
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count={pages + more}")


def test_a_full_disk_is_told_and_takes_nothing(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "users.sqlite")
    put(store, "u", Event("a", 1.0))
    limit_pages(store, 2)
    with pytest.raises(StoreFullError, match=r"the disk of the store users\.sqlite is full"):
        put(store, "u", Event("b", 2.0), snapshot=b"x" * 100_000)
    assert items(store, "u") == ["a"]  # reading works, and nothing was half written
    limit_pages(store, 1_000_000)
    assert put(store, "u", Event("b", 2.0), snapshot=b"x" * 100_000)
    assert items(store, "u") == ["a", "b"]
    store.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not a database, but long enough to look at" * 30, "cannot be used as a store")],
)
def test_another_file_is_not_touched(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        open_store(str(path))
    assert path.read_bytes() == content


def test_places_that_cannot_be() -> None:
    with pytest.raises(InputError, match="is not a folder"):
        open_store("no/such/folder/users.sqlite")
    with pytest.raises(InputError, match="write the store as redis://"):
        open_store("redis://host:not-a-port")
