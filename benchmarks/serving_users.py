"""More users than a server keeps in memory: what they take, and what a random one of them costs.

    python -m benchmarks.serving_users --users 1000000

Generates users with two to eight events each, imports them as `linrec serve --data` does, and asks
a server that caches nothing (`--cache-mb 0`) about users drawn at random. Events are stored for
all of them; a state is made with the first list of a user, so it is stored for those who were
asked about, and what a state takes is measured on these. The file of an SQLite store is dropped
from the system's cache before it is read again. Redis (its limit is 8 GiB) runs with
`appendfsync always`. Bytes of users, events and ids come from smaller stores of known sizes.
Writes results/benchmarks/serving-users.json and the tables of docs/serving.md; `--store` measures
one of the stores and leaves the figures of the other.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Protocol

import numpy as np
import polars as pl
import torch

from benchmarks import serving_capacity
from benchmarks.environment import environment
from benchmarks.results import write_json
from benchmarks.serving import SIZE, event, generated, recommend_request
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.serving import Store, open_store
from linrec.serving.bulk import USERS_AT_ONCE, import_histories
from linrec.serving.model import ServedModel
from linrec.serving.stores import Change, Event
from tests.serving.cases import make_run
from tests.serving.redis_server import RedisServer, why_no_redis
from tests.serving.serving_process import ServeProcess

KEEP = 100_000
SHORTEST, LONGEST = 2, 8  # events of a generated user
SIZED_USERS = 500  # of stores whose sizes are compared, with so many events each:
SHORT, LONG, LONGER, LONGEST_SIZED = 10, 110, 200, 400
ID_LENGTH = 16
REDIS_BYTES = 8 * 2**30
STORES = ("sqlite", "redis")


class Place(Protocol):
    """Where users are kept, and what they take there."""

    address: str

    def bytes(self) -> int: ...

    def cold(self) -> None:
        """Read from the disk again, if that is where it is."""


@dataclass
class SQLitePlace:
    address: str

    def bytes(self) -> int:
        path = Path(self.address)
        return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))

    def cold(self) -> None:
        opened = os.open(self.address, os.O_RDONLY)
        os.fsync(opened)
        os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(opened)


@dataclass
class RedisPlace:
    server: RedisServer

    def __post_init__(self) -> None:
        import redis

        self.address = self.server.url
        self._redis: Any = redis.Redis(port=self.server.port)
        self._redis.flushall()
        self._redis.config_set("maxmemory", REDIS_BYTES)
        self._empty = self._redis.info("memory")["used_memory"]

    def bytes(self) -> int:
        used: int = self._redis.info("memory")["used_memory"]
        return used - self._empty

    def on_disk(self) -> int:
        return sum(file.stat().st_size for file in self.server.folder.rglob("*") if file.is_file())

    def cold(self) -> None:
        """Redis has everything in memory."""


# ---------------------------------------------------------------------------------------- the users


def histories(users: int, items: int, seed: int) -> SequenceStore:
    """Users with a few events each, over as many items."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(SHORTEST, LONGEST + 1, users)
    total = int(counts.sum())
    drawn = np.concatenate([np.arange(items), rng.integers(0, items, total)])[:total]
    frame = pl.DataFrame({
        "user": np.repeat(np.arange(users), counts), "item": drawn,
        "time": 1.6e9 + np.arange(total),
    })  # fmt: skip
    named = frame.with_columns(
        pl.format("user-{}", "user").alias("user"), pl.format("item-{}", "item").alias("item")
    )
    return prepare(named)


def imported(data: SequenceStore, store: Store) -> dict[str, float]:
    """Seconds of what `serve --data` does before it serves, the first time and the next."""
    found = {}
    for name in ("load", "load_again"):
        begin, begin_cpu = perf_counter(), process_time()
        import_histories(data, store, KEEP)
        found[f"{name}_seconds"] = round(perf_counter() - begin, 1)
        found[f"{name}_cpu_seconds"] = round(process_time() - begin_cpu, 1)
        print(name, found)
    return found


# ------------------------------------------------------------------------------------------- asking


@contextmanager
def asked(run: Path, place: Place) -> Iterator[ServeProcess]:
    """A server that has nothing in memory."""
    place.cold()
    server = ServeProcess(run, place.address, "--cache-mb", "0", "--timeout", "600")
    server.port = int(server.start().rsplit(":", 1)[1])  # type: ignore[attr-defined]
    try:
        yield server
    finally:
        server.end()


def resident(server: ServeProcess) -> int:
    """Bytes of memory of a server."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()  # type: ignore[union-attr]
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def row(server: ServeProcess, kind: str, requests: list[Any], connections: int) -> dict[str, Any]:
    plan = {
        "port": server.port, "connections": connections, "seconds": 600,  # type: ignore[attr-defined]
        "most": len(requests), "requests": requests, "first": connections * 10**9,
    }  # fmt: skip
    found = generated(plan)
    rate = round(found["all"]["requests"] / found["seconds"], 1)
    outcome = {"kind": kind, "connections": connections, **found["all"], "a_second": rate}
    print(outcome)
    return outcome


def latencies(
    run: Path, place: Place, args: argparse.Namespace
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of latencies, and what the states took that this made."""
    rng = np.random.default_rng(args.seed + 1)
    drawn = rng.choice(args.users, 4 * args.requests, replace=False).reshape(4, -1)
    one, eight, fresh, more = ([f"user-{number}" for number in some] for some in drawn)
    rows, before = [], place.bytes()
    with asked(run, place) as server:
        memory = resident(server)
        for connections, names in ((1, one), (args.connections, eight)):
            lists = [recommend_request(name) for name in names]
            rows.append(row(server, "first list", lists, connections))
    state = (place.bytes() - before) / (2 * args.requests)
    kinds = {
        "list": ([recommend_request(name) for name in some] for some in (one, eight)),
        "event": ([event(name, "item-1") for name in some] for some in (one, eight)),
        "event, no state yet": ([event(name, "item-1") for name in some] for some in (fresh, more)),
    }
    with asked(run, place) as server:
        for kind, pair in kinds.items():
            for connections, requests in zip((1, args.connections), pair, strict=True):
                rows.append(row(server, kind, requests, connections))
        memory_after = resident(server)
    return rows, {
        "state_bytes": round(state), "server_bytes": memory, "server_bytes_after": memory_after
    }  # fmt: skip


# -------------------------------------------------------------------------------------------- sizes


def sizes(make: Any) -> dict[str, float]:
    """What a user, an event and the id of an event take, by stores that differ in one of them."""

    def taken(events: int, ids: bool) -> float:
        place = make()
        store = open_store(place.address)
        for first in range(0, SIZED_USERS, USERS_AT_ONCE):
            users = range(first, min(first + USERS_AT_ONCE, SIZED_USERS))
            store.commit([sized_user(number, events, ids) for number in users])
        store.close()
        found: float = place.bytes() / SIZED_USERS
        return found

    taken(1, False)  # what a store takes once
    short, long, with_ids = taken(SHORT, False), taken(LONG, False), taken(LONG, True)
    each = (long - short) / (LONG - SHORT)
    longer = (taken(LONGEST_SIZED, True) - taken(LONGER, True)) / (LONGEST_SIZED - LONGER)
    return {
        "user_bytes": round(short - SHORT * each), "event_bytes": round(each, 1),
        "id_bytes": round((with_ids - long) / LONG, 1), "long_event_bytes": round(longer, 1),
    }  # fmt: skip


def sized_user(number: int, events: int, ids: bool) -> Change:
    some = [
        Event(f"item-{at % 10_000}", 1.6e9 + at, f"{at:0{ID_LENGTH}d}" if ids else None)
        for at in range(number, number + events)
    ]
    return Change(f"user-{number}", None, some, None, KEEP)


def measured(base: Path, kind: str, data: SequenceStore, args: argparse.Namespace) -> Any:
    run = make_run(base / f"run-{kind}", data, **SIZE)
    with ExitStack() as stack:
        if kind == "redis":
            (base / "redis").mkdir()
            server = stack.enter_context(RedisServer(base / "redis"))
            constants = sizes(lambda: RedisPlace(server))
            place: Any = RedisPlace(server)
        else:
            names = iter(range(10))
            constants = sizes(lambda: SQLitePlace(str(base / f"sized-{next(names)}.sqlite")))
            place = SQLitePlace(str(base / "users.sqlite"))
        store = open_store(place.address)
        found: dict[str, Any] = {**environment(), **imported(data, store)}
        store.close()
        found["bytes_per_user"] = round(place.bytes() / args.users, 1)
        rows, more = latencies(run, place, args)
        if kind == "redis":
            found["disk_bytes"] = place.on_disk()
    packed = ServedModel(run).states.bytes
    return {**found, **constants, **more, "packed_state_bytes": packed, "rows": rows}


def main() -> None:
    args = _arguments()
    torch.set_num_threads(1)
    outcome: dict[str, Any] = {"stores": {}}
    if args.out.exists():
        outcome = json.loads(args.out.read_text("utf-8"))
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        begin = perf_counter()
        data = histories(args.users, args.items, args.seed)
        print(f"generated {data.n_users:,} users in {perf_counter() - begin:.0f} s")
        stores = outcome["stores"] if outcome.get("users") == args.users else {}
        for kind in args.store or STORES:
            if kind == "redis" and (reason := why_no_redis()) is not None:
                print(f"left out Redis: {reason}")
                continue
            stores[kind] = measured(Path(folder), kind, data, args)
            stores[kind]["command"] = "python -m benchmarks.serving_users " + " ".join(sys.argv[1:])
            write_json(args.out, {
                "users": args.users, "events": int(data.offsets[-1]), "items": args.items,
                "seed": args.seed, "stores": stores,
            })  # fmt: skip
            print(f"wrote {args.out}")
    if args.out == serving_capacity.FIGURES:
        serving_capacity.render()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=4_000, help="of each kind, on other users")
    parser.add_argument("--connections", type=int, default=8, help="beside a single one")
    parser.add_argument("--store", choices=STORES, action="append", help="default: both")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: temporary")
    parser.add_argument("--out", type=Path, default=serving_capacity.FIGURES)
    given = parser.parse_args()
    if given.users < 4 * given.requests:
        parser.error("--users must be at least four times --requests, which ask about other users")
    return given


if __name__ == "__main__":
    main()
