"""What one event and one list cost in the engine, without HTTP, and the parts of both.

    python -m benchmarks.serving_engine

At the size of the default model and ML-1M's 3,416 items, with SQLite in synchronous=FULL: seconds
and CPU seconds of `Engine.append` (while the write-ahead log of a new store still grows, and after
that, when SQLite writes it in place; of many users in one commit; with the state stored with every
event; and with synchronous=OFF, which gives durability up and shows what is left without the disk)
and of `Engine.recommend`; of writing as many bytes as a state has and waiting for the disk; and of
one step of the model in its compiled form and in torch, which alternate. CPU seconds are what
counts on a machine that does other work; they include those of the system.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from benchmarks.environment import environment
from linrec.backbones import build, model_config
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.store import SequenceStore
from linrec.serving import Engine, EngineSettings, NewEvent, open_store
from linrec.serving.appending import Append
from linrec.serving.past import Past
from linrec.serving.states import States, states_of
from linrec.serving.stores import SQLiteStore
from linrec.serving.stores.sqlite_connections import WAIT_SECONDS
from tests.serving.cases import make_run

ITEMS = 3_416
# the default model: two layers with head norm, reading time; and a deeper one
SIZES: dict[str, dict[str, Any]] = {
    "2 layers": {"layers": 2},
    "4 layers, pre-norm, gate": {"layers": 4, "norm": "pre", "gate": True},
}
SIZE: dict[str, Any] = {
    "width": 128, "heads": 8, "inner": 256, "positions": 256, "time_gaps": True, "head_norm": True,
}  # fmt: skip
USERS, EVENTS = 50, 100
TOGETHER = 16  # users whose events are committed together
GROWTH_CHECK = 20  # appends after which a log that has not grown is written in place
IN_PLACE = 16 * 2**20  # bytes, as many as the write-ahead log has


def measured(work: Callable[[int], object], repeats: int) -> dict[str, float]:
    """Medians, and the 99th percentile of the time."""
    times, cpu = [], []
    for turn in range(repeats):
        begin, begin_cpu = perf_counter(), process_time()
        work(turn)
        times.append(perf_counter() - begin)
        cpu.append(process_time() - begin_cpu)
    at = np.percentile(times, [50, 99]) * 1000
    return {
        "p50_ms": round(float(at[0]), 4), "p99_ms": round(float(at[1]), 4),
        "cpu_p50_ms": round(float(np.median(cpu)) * 1000, 4),
    }  # fmt: skip


class Unsynced(SQLiteStore):
    """Tells the system nothing about when to write: what an append costs besides the disk."""

    def _open(self, timeout: float = WAIT_SECONDS) -> sqlite3.Connection:
        opened = super()._open(timeout)
        opened.execute("PRAGMA synchronous=OFF")
        return opened


def engine_costs(
    folder: Path, data: SequenceStore, repeats: int, **changes: Any
) -> dict[str, dict[str, float]]:
    run = make_run(folder / "run", data, **SIZE | changes)
    every = EngineSettings(state_every=1)
    engines = {
        "append": Engine(run, open_store(str(folder / "users.sqlite"))),
        "append, state with every event": Engine(run, SQLiteStore(folder / "b.sqlite"), every),
        "append, without any sync": Engine(run, Unsynced(folder / "c.sqlite")),
    }
    for engine in engines.values():
        rng = np.random.default_rng(0)
        for user in range(USERS):
            items = rng.integers(0, data.n_items // 2, EVENTS).tolist()
            past = [NewEvent(f"item-{i}", float(t)) for t, i in enumerate(items)]
            engine.append(f"u{user}", past)
    number = itertools.count()

    def request() -> Append:
        n = next(number)
        return Append(f"u{n % USERS}", [NewEvent(f"item-{n % data.n_items}", id=str(n))])

    def append(engine: Engine) -> None:
        engine.append_many([request()])

    def append_together(engine: Engine) -> None:
        engine.append_many([request() for _ in range(TOGETHER)])

    first = engines["append"]
    costs = {"append, while the log grows": measured(lambda _: append(first), repeats)}
    for name, engine in engines.items():
        settle(engine, append)
        costs[name] = measured(lambda _, engine=engine: append(engine), repeats)
    # as requests that arrive while another commit is written
    name = f"append, {TOGETHER} users in one commit"
    costs[name] = measured(lambda _: append_together(first), max(repeats // TOGETHER, 5))
    costs["recommend"] = measured(lambda n: first.recommend(f"u{n % USERS}"), repeats)
    costs |= sync_costs(folder, first.model.states.bytes, repeats)
    for engine in engines.values():
        engine.close()
    return costs


def settle(engine: Engine, append: Callable[[Engine], None]) -> None:
    """Append until the write-ahead log no longer grows: SQLite then starts it from the beginning.

    Until then every commit makes the log longer, which costs the file system more than writing in
    place; a server is past that after about a thousand events.
    """
    assert isinstance(engine.store, SQLiteStore)
    log, before = Path(f"{engine.store.path}-wal"), -1
    while log.stat().st_size != before:
        before = log.stat().st_size
        for _ in range(GROWTH_CHECK):
            append(engine)


def sync_costs(folder: Path, size: int, repeats: int) -> dict[str, dict[str, float]]:
    """Of writing that many bytes and waiting for the disk, the least that a commit could take.

    SQLite calls fdatasync, and writes its log in place once it has been through it.
    """
    opened = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY)
    os.write(opened, bytes(IN_PLACE))
    os.fsync(opened)
    places, content = IN_PLACE // size, bytes(size)

    def write(turn: int, sync: Callable[[int], None], in_place: bool) -> None:
        os.pwrite(opened, content, turn % places * size if in_place else IN_PLACE + turn * size)
        sync(opened)

    ways = {
        (f"{sync.__name__}, {'in place' if in_place else 'growing file'}"): (sync, in_place)
        for in_place in (True, False)
        for sync in (os.fdatasync, os.fsync)
    }
    try:
        found = {}
        for name, way in ways.items():
            os.ftruncate(opened, IN_PLACE)
            found[name] = measured(lambda turn, way=way: write(turn, *way), repeats)
        return found
    finally:
        os.close(opened)


@torch.inference_mode()
def step_costs(repeats: int, **changes: Any) -> list[dict[str, Any]]:
    model = build(model_config(**SIZE | changes), ItemFeatures.ids(ITEMS)).eval()
    ways: dict[str, States] = {
        "compiled": states_of(model), "torch": states_of(model, compiled=False),
    }  # fmt: skip
    rows = []
    for users in (1, 16, 64):
        events = [Past(np.array([1 + n]), np.array([9.0])) for n in range(users)]
        for way, states in ways.items():
            begun = states.advance([states.start] * users, events)
            cost = measured(lambda _, s=states, b=begun, e=events: s.advance(b, e), repeats)
            rows.append({"way": way, "users": users} | cost)
    return rows


def costs(args: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.serving import catalogue

    data, outcome = catalogue(args.engine_items), {}
    for name, changes in SIZES.items():
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            outcome[name] = {
                "engine": engine_costs(Path(folder), data, args.engine_repeats, **changes),
                "step": step_costs(max(args.engine_repeats // 10, 5), **changes),
            }
    return {"items": args.engine_items, "models": outcome}


def tables(found: dict[str, Any]) -> list[str]:
    lines = [
        f"In the engine, {found['items']:,} items (CPU includes the system's part of a write):",
        "", "| model | what | p50 ms | p99 ms | CPU p50 ms |", "|" + "---|" * 5,
    ]  # fmt: skip
    for name, parts in found["models"].items():
        rows = [(what, row) for what, row in parts["engine"].items()]
        rows += [(f"step, {row['way']}, {row['users']} user(s)", row) for row in parts["step"]]
        lines += [
            f"| {name} | {what} | {row['p50_ms']:.3f} | {row['p99_ms']:.3f} "
            f"| {row['cpu_p50_ms']:.3f} |"
            for what, row in rows
        ]
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine-items", type=int, default=ITEMS)
    parser.add_argument("--engine-repeats", type=int, default=1_000, help="of each measurement")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: temporary")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add_arguments(parser)
    torch.set_num_threads(1)
    outcome = costs(parser.parse_args())
    print(json.dumps(environment() | outcome, indent=1))
    print("\n".join(tables(outcome)))


if __name__ == "__main__":
    main()
