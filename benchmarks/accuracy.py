"""Time to accuracy: how long each library trains until its validation NDCG@10 is high enough.

    .venv/bin/python -m benchmarks.accuracy                          # to 0.18 on ML-1M
    .venv/bin/python -m benchmarks.accuracy --models linrec --goal 0.2 --minutes 5

linrec's recipe `default` as `linrec train` runs it, and RecTools' SASRec and HSTU in the paper's
size (d 128, 8 heads, 2 layers, the last 200 events, softmax over all items), on the same events of
ML-1M with at least 5 ratings per item. After each epoch the validation event of every user is
ranked among all items, seen ones hidden, its time given to the models that take one; only training
counts. A library that is not there after `--minutes` has not reached the goal, and the table says
what it had reached. Run it while nothing else runs. Writes results/benchmarks/accuracy.json and the
table of docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environment import ROOT, environment
from benchmarks.peers.common import Task
from benchmarks.peers.run import DATASETS, answer
from benchmarks.results import OUT_FOLDER, PAGE, between, where, write_json
from linrec.data.preparing.prepare import prepare

OUT = OUT_FOLDER / "accuracy.json"
TITLES = {
    "linrec": "linrec, recipe `default`",
    "rectools-sasrec": "RecTools, SASRec (softmax loss)",
    "rectools-hstu": "RecTools, HSTU (softmax loss)",
}
# name -> where it runs, its module, its variant, rows of a training and of an evaluation batch
MODELS = {
    "linrec": ("ours", "ours_accuracy", "default", 0, 0),
    "rectools-sasrec": ("rectools", "rectools_accuracy", "sasrec", 64, 256),
    "rectools-hstu": ("rectools", "rectools_accuracy", "hstu", 64, 256),
}


def main() -> None:
    args = _arguments()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        about = write_events(args.events, Path(folder))
        for name in args.models:
            place, module, variant, batch, eval_batch = MODELS[name]
            variant = args.recipe if place == "ours" else variant
            task = Task(folder, variant, batch, eval_batch, threads=args.threads,
                        seconds=60 * args.minutes, goal=args.goal)  # fmt: skip
            found = answer(name, place, f"benchmarks.peers.{module}", task)
            rows.append({"name": name, **found})
            print(sentence(rows[-1]), flush=True)
    write_json(
        args.out,
        {
            "command": "python -m benchmarks.accuracy " + " ".join(sys.argv[1:]),
            **environment(),
            "threads": args.threads,
            "goal": args.goal,
            "dataset": about,
            "rows": rows,
        },
    )
    print(f"wrote {args.out}")
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def write_events(events: Path, folder: Path) -> dict[str, Any]:
    """The same events for all: a dataset of ours, and arrays for the others."""
    store = prepare(events, folder / "data", **DATASETS["ml-1m"]["filter"])
    np.savez(folder / "events.npz", items=store.items, offsets=store.offsets, times=store.times)
    return {"users": store.n_users, "items": store.n_items, "events": store.n_events}


def sentence(row: dict[str, Any]) -> str:
    end = "reached it" if row["reached"] else "did not reach it"
    best = max(one["ndcg"] for one in row["curve"])
    return (
        f"{row['name']:<16} {end} in {row['seconds']:,.0f} s, {len(row['curve'])} epochs; "
        f"NDCG@10 {best:.4f}"
    )


def table(outcome: dict[str, Any]) -> str:
    own = next((row for row in outcome["rows"] if row["name"] == "linrec"), None)
    lines = [
        f"| | s to validation NDCG@10 {outcome['goal']} | x ours | epochs | NDCG@10 then |",
        "|---|---|---|---|---|",
    ]
    for row in outcome["rows"]:
        more = "" if row["reached"] else "more than "
        # epochs are timed to a tenth of a second, so a tiny training may have taken none
        known = own is not None and own["reached"] and own["seconds"] > 0
        ratio = row["seconds"] / own["seconds"] if known else None
        cells = [
            f"{TITLES[row['name']]}, {row['version']}",
            f"{more}{row['seconds']:,.0f}",
            "-" if ratio is None else f"{more}{ratio:.1f}",
            str(len(row["curve"])),
            f"{row['curve'][-1]['ndcg']:.4f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    data = outcome["dataset"]
    caption = (
        f"ML-1M: {data['users']:,} users, {data['items']:,} items, {data['events']:,} events, one "
        f"seed; {where(outcome)}"
    )
    return "\n".join([*lines, "", caption]) + "\n"


def rendered(page: str) -> str:
    """docs/performance.md with the table between its markers replaced."""
    return between(page, "accuracy", table(json.loads(OUT.read_text("utf-8"))))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--goal", type=float, default=0.18, help="validation NDCG@10 (0.18)")
    parser.add_argument("--minutes", type=float, default=30.0, help="of training, per model (30)")
    parser.add_argument("--recipe", default="default", help="of linrec (default)")
    parser.add_argument("--events", type=Path, default=ROOT.parent / "shared/data/ml-1m",
                        help="path of the events (../shared/data/ml-1m)")  # fmt: skip
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
