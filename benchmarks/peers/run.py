"""SASRec as a user would pick it elsewhere, against ours: same events, same shape, same threads.

    make bench-peers                                         # all
    make bench-peers PEERS_ARGS="--peers rectools linrec-decay --seconds 20"
    make bench-peers PEERS_ARGS="--dataset gowalla --peers recbole linrec-decay --seconds 0"

RecBole, RecTools and RePlay are run by the python of their own environment (`make envs`). Training
is timed for a bounded number of seconds after its first steps, by the targets it gets through:
RecBole trains one target per row, the others every position. RecBole switches autograd's anomaly
checks on when it is imported; they stay on, as its users have them. Then every test user is ranked
over the full catalogue (RecBole cannot hide seen items, the others do) and the peak of the process
is taken. Run it while nothing else runs. Writes results/benchmarks/peers-DATASET.json, and the
tables of docs/performance.md and README.md with their plot.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks import speed
from benchmarks.environment import ROOT, environment
from benchmarks.peers import page
from benchmarks.peers.common import LOG, Task
from benchmarks.results import OUT_FOLDER, write_json
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from tests.transplant import environments

# name -> its module, which is its environment's name too, what varies, and its batches
PEERS: dict[str, tuple[str, str, int, int]] = {
    "recbole": ("recbole", "softmax", 256, 512),
    "recbole-linrec": ("recbole", "linrec", 256, 512),
    "rectools": ("rectools", "softmax", 64, 256),
    "replay": ("replay", "softmax", 64, 256),
    "softmax": ("ours", "softmax", 4096, 0),
    "linrec": ("ours", "linrec", 4096, 0),
    "linrec-decay": ("ours", "linrec-decay", 4096, 0),
    "default": ("ours", "default", 0, 0),  # as it ships: its own size, batches and precision
}
# rare items are left out as most papers on ML-1M do; Gowalla comes without them
DATASETS: dict[str, dict[str, Any]] = {
    "ml-1m": {"filter": {"min_item_events": 5}, "shape": {}},
    "gowalla": {"filter": {}, "shape": {"length": 100, "width": 64}},
}
HOUR = 3600


def main() -> None:
    args = _arguments()
    events = args.events or ROOT.parent / "shared/data" / args.dataset
    best: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        about = write_events(events, Path(folder), args.dataset)
        for turn in range(args.turns):
            for name in args.peers:
                if turn and name in args.once:
                    continue
                found = measured(name, task_of(name, folder, args))
                best[name] = better(best.get(name), found)
                print(f"{turn + 1}/{args.turns} {page.sentence(name, found)}", flush=True)
    outcome = {
        "command": "python -m benchmarks.peers.run " + " ".join(sys.argv[1:]),
        **environment(),
        "threads": args.threads,
        "dataset": {"name": args.dataset, **about},
        "shape": shape_of(args),
        "rows": page.with_ratios(best, page.OURS),
    }
    write_json(args.out, outcome)
    print(f"wrote {args.out}")
    if args.out.parent == OUT_FOLDER:
        page.write()
        speed.write()


def write_events(events: Path, folder: Path, dataset: str) -> dict[str, int]:
    """The same events for all: as arrays, and as the text file that RecBole and `prepare` read."""
    store = prepare(events, **DATASETS[dataset]["filter"])
    np.savez(folder / "events.npz", items=store.items, offsets=store.offsets)
    write_log(store, folder)
    return {"users": store.n_users, "items": store.n_items, "events": store.n_events}


def write_log(store: SequenceStore, folder: Path) -> None:
    """The text file; RecBole's times are 32-bit floats, so they hold the place in the history."""
    lengths = np.diff(store.offsets)
    table = pl.DataFrame(
        {
            "user_id:token": np.repeat(np.arange(store.n_users), lengths) + 1,
            "item_id:token": store.items,
            "timestamp:float": np.arange(store.n_events) - np.repeat(store.offsets[:-1], lengths),
        }
    )
    (folder / LOG).mkdir()
    table.write_csv(folder / LOG / f"{LOG}.inter", separator="\t")


def task_of(name: str, folder: str, args: argparse.Namespace) -> Task:
    _, variant, batch, eval_batch = PEERS[name]
    return Task(
        folder, variant, batch, eval_batch, threads=args.threads, seconds=args.seconds,
        warm_up=args.warm_up, **shape_of(args),
    )  # fmt: skip


def shape_of(args: argparse.Namespace) -> dict[str, int]:
    usual = {name: getattr(Task, name) for name in ("length", "width", "heads", "layers", "inner")}
    given = {name: getattr(args, name) for name in usual if getattr(args, name) is not None}
    return usual | DATASETS[args.dataset]["shape"] | given


def measured(name: str, task: Task) -> dict[str, Any]:
    module = PEERS[name][0]
    found = answer(name, module, f"benchmarks.peers.{module}", task)
    found["batch"] = task.batch
    if task.seconds:
        found["seconds_a_million"] = 1e6 * found["train_seconds"] / found["targets"]
    return found


def answer(name: str, place: str, module: str, task: Task) -> dict[str, Any]:
    """One peer in a process of its own, because a peak never falls.

    place: "ours", or the environment of another library.
    """
    arguments = json.dumps(asdict(task))
    if place == "ours":
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", module, arguments],
            cwd=ROOT, capture_output=True, text=True, timeout=HOUR, check=False,
            env=os.environ | {"POLARS_MAX_THREADS": str(task.threads)},
        )  # fmt: skip
    elif environments.is_ready(place):
        done = environments.run(place, module, arguments, seconds=HOUR)
    else:
        raise SystemExit(f".envs/{place} does not exist; run `make envs`, or leave out {name}")
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def better(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """The best time of each kind, and the larger peak."""
    if before is None:
        return now
    times = [name for name in now if "seconds" in name and name != "train_seconds"]
    peaks = [name for name in now if name.endswith("peak_mb")]
    return (
        now
        | {name: min(before[name], now[name]) for name in times}
        | {name: max(before[name], now[name]) for name in peaks}
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--dataset", choices=DATASETS, default="ml-1m")
    parser.add_argument("--events", type=Path, help="path of its events (../shared/data)")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of training (0: none)")
    parser.add_argument("--warm-up", type=int, default=2, help="steps before the clock starts")
    parser.add_argument("--turns", type=int, default=1, help="rounds; the best counts")
    slow = ["recbole", "recbole-linrec"]
    parser.add_argument(
        "--once", nargs="*", default=slow, help="peers measured in the first round only"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    for name in ("length", "width", "heads", "layers", "inner"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.out = args.out or OUT_FOLDER / f"peers-{args.dataset}.json"
    return args


if __name__ == "__main__":
    main()
