"""What one event and one list cost in the engine, without HTTP, and the parts of both.

    python -m benchmarks.serving_engine

At the size of the default model and ML-1M's 3,416 items, with SQLite in synchronous=FULL: seconds
and CPU seconds of `Engine.append` and `Engine.recommend`, of an fsync alone after as many bytes as
a state has, and of one step of the model in its compiled form and in torch, which alternate. CPU
seconds are what counts on a machine that does other work; they include those of the system.
"""

from __future__ import annotations

import argparse
import json
import os
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
from linrec.serving import Engine, NewEvent, open_store
from linrec.serving.past import Past
from linrec.serving.states import States, states_of
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


def engine_costs(
    folder: Path, data: SequenceStore, repeats: int, **changes: Any
) -> dict[str, dict[str, float]]:
    run = make_run(folder / "run", data, **SIZE | changes)
    engine = Engine(run, open_store(str(folder / "users.sqlite")))
    rng = np.random.default_rng(0)
    for user in range(USERS):
        items = rng.integers(0, data.n_items // 2, EVENTS).tolist()
        engine.append(f"u{user}", [NewEvent(f"item-{i}", float(t)) for t, i in enumerate(items)])
    costs = {
        "append": measured(
            lambda n: engine.append(f"u{n % USERS}", [NewEvent(f"item-{n % 1000}", id=str(n))]),
            repeats,
        ),
        "recommend": measured(lambda n: engine.recommend(f"u{n % USERS}"), repeats),
        "fsync": fsync_cost(folder, engine.model.states.bytes, repeats),
    }
    engine.close()
    return costs


def fsync_cost(folder: Path, size: int, repeats: int) -> dict[str, float]:
    """After appending that many bytes to a file, which is what a commit waits for."""
    opened = os.open(folder / "fsync", os.O_CREAT | os.O_WRONLY)

    def write(_: int) -> None:
        os.write(opened, bytes(size))
        os.fdatasync(opened)

    try:
        return measured(write, repeats)
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
