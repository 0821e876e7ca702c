"""Many events into a store: at least once, resumable, and the same as appending them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from linrec.serving import Engine, NewEvent, Store, StoreError, open_store
from linrec.serving.contexts import context_of
from linrec.serving.ingest_settings import IngestSettings
from linrec.serving.ingesting import Ingest, Ingested, parse_event
from linrec.serving.model import ServedModel
from linrec.serving.sources import Batch, FileSource, PipeSource, StreamSource, open_source
from linrec.types import InputError
from tests.serving.cases import assert_rebuilt_is_the_same
from tests.serving.redis_server import RedisServer

MakeEngine = Callable[..., Engine]


def line(user: str, item: str, time: float | None = None, **more: object) -> str:
    content = {"user": user, "item": item, "time": time, **more}
    return json.dumps({name: value for name, value in content.items() if value is not None})


def many(count: int, users: int = 5) -> list[str]:
    return [line(f"u{n % users}", f"i{n % 16:02}", float(n)) for n in range(count)]


def write(path: Path, lines: list[str], mode: str = "w") -> Path:
    with path.open(mode) as file:
        file.write("".join(f"{each}\n" for each in lines))
    return path


def take(store: Store, source: Any, model: ServedModel | None = None, **settings: Any) -> Ingested:
    given = {"batch": 7, **settings}
    return Ingest(store, IngestSettings(**given), model).run(source)


class Interrupted:
    """A source whose reader ends before the second batch is confirmed."""

    def __init__(self, source: FileSource) -> None:
        self._source = source

    def batches(self, size: int) -> Iterator[Batch]:
        return self._source.batches(size)

    def confirm(self, batch: Batch) -> None:
        if batch.done > 7 * 50:
            raise StoreError("ended here")
        self._source.confirm(batch)


@pytest.mark.parametrize("states", ["now", "later"])
def test_the_same_as_appending(
    run: Path, store: Store, tmp_path: Path, make_engine: MakeEngine, states: str
) -> None:
    file = write(tmp_path / "e.jsonl", many(40))
    engine = make_engine(run, store)
    engine.append("u1", [NewEvent("i09", -5.0)])
    done = take(store, FileSource(file, store), engine.model if states == "now" else None)
    assert (done.stored, done.duplicates, done.bad) == (40, 0, {})
    assert [event.item for event in store.history("u1")][:3] == ["i09", "i01", "i06"]
    assert engine.user("u1").state == ("current" if states == "now" else "stale")
    for n in range(5):
        assert_rebuilt_is_the_same(engine, store, f"u{n}")


def test_a_file_is_resumed_and_nothing_comes_twice(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path / "e.jsonl", many(30))
    with pytest.raises(StoreError):
        take(store, Interrupted(FileSource(file, store)))
    assert 0 < sum(len(store.history(f"u{n}")) for n in range(5)) < 30
    again = take(store, FileSource(file, store))
    assert again.duplicates > 0  # stored, but not confirmed
    assert sum(len(store.history(f"u{n}")) for n in range(5)) == 30
    write(file, many(3), "a")
    with file.open("a") as opened:
        opened.write('{"user": "u1", "it')  # somebody is still writing
    assert take(store, FileSource(file, store)).stored == 3
    with file.open("a") as opened:
        opened.write('em": "i01"}')
    assert take(store, FileSource(file, store)).stored == 1
    whole = take(store, FileSource(file, store, restart=True))
    assert (whole.stored, whole.duplicates) == (0, 34)
    write(file, many(2, users=1))
    with pytest.raises(InputError, match="its beginning differs"):
        FileSource(file, store)


def test_bad_lines_are_counted_and_sampled(store: Store) -> None:
    bad = [
        "no json", "[1]", "7", line("u", "i01", id=True), '{"user": "u"}',
        '{"user": "u", "item": "i", "time": "x"}', line("u", "a\nb"), line("u", "i01", 1e15),
        '{"user": "u", "item": "i", "time": NaN}', line("\x00", "i01"), "",
    ]  # fmt: skip
    good = [line("u", "i01", 1.0, id="e1", shop=7), line("u", "i02", 2.0), line(7, "i03", 3.0)]  # type: ignore[arg-type]
    text = "\n".join([*bad, *good, good[0]])
    done = take(store, PipeSource(io.BytesIO(text.encode() + b"\n\xff\xfe\n")))
    assert (done.stored, done.duplicates) == (3, 1)
    assert done.bad.total() == len(bad)  # the empty line is none, the last one is not text
    assert done.bad["not JSON"] == 2
    assert done.bad["time is not a number of seconds"] == 2
    assert len(done.samples) == 5
    assert [event.id for event in store.history("u")] == ["e1", None]
    assert [event.item for event in store.history("7")] == ["i03"]


def test_late_events_that_are_refused_are_counted(store: Store) -> None:
    text = "\n".join([line("u", "i01", 10.0), *many(7, users=2), line("u", "i02", 5.0)])
    done = take(store, PipeSource(io.BytesIO(text.encode())), late="refuse")
    assert done.stored == 8
    (reason,) = done.bad
    assert "late events are refused" in reason


def test_an_id_of_its_own_wins() -> None:
    assert parse_event(b'{"user": 1, "item": "a", "id": 5}', "n")[1].id == "5"
    assert parse_event(b'{"user": 1, "item": "a"}', "n") == ("1", NewEvent("a", None, "n"))


def test_events_bring_their_context(store: Store) -> None:
    lines = [
        line("u", "i01", 1.0, context={"type": "view", "price": 2.5}),
        line("u", "i02", 2.0, context={"type": ["view"]}),
        line("u", "i03", 3.0, context="view"),
        line("u", "i04", 4.0),
    ]
    done = take(store, PipeSource(io.BytesIO("\n".join(lines).encode())))
    assert (done.stored, done.bad.total(), len(done.bad)) == (2, 2, 1)
    kept = [context_of(event.context) for event in store.history("u")]
    assert kept == [{"type": "view", "price": 2.5}, {}]


def test_sources(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        open_source(str(tmp_path / "none"), store)
    with pytest.raises(InputError, match="names no stream"):
        open_source("redis-stream://localhost:1", store)
    with pytest.raises(InputError, match="does not answer"):
        open_source("redis-stream://localhost:1/events", store)


@pytest.mark.service
def test_a_stream(redis_server: RedisServer, tmp_path: Path) -> None:
    """Two readers of one group share it; what one took and did not confirm is not lost."""
    import redis

    redis_server.empty()
    server = redis.Redis(port=redis_server.port)
    for n, each in enumerate(many(30)):
        fields = {"json": each} if n % 2 else {k: str(v) for k, v in json.loads(each).items()}
        server.xadd("events", fields)  # type: ignore[arg-type]
    address = f"redis-stream://127.0.0.1:{redis_server.port}/events?consumer="
    store = open_store(str(tmp_path / "u.sqlite"))
    crashed = StreamSource(address + "a", until_empty=True)
    next(crashed.batches(7))  # taken, never confirmed
    done = take(store, StreamSource(address + "b", until_empty=True))
    assert done.stored == 23
    done = take(store, StreamSource(address + "a", until_empty=True))
    assert done.stored == 7
    assert take(store, StreamSource(address + "a", until_empty=True)) == Ingested()
    assert sum(len(store.history(f"u{n}")) for n in range(5)) == 30
    assert server.xpending("events", "linrec")["pending"] == 0
    store.close()
