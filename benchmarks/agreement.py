"""Does linrec rank as RecBole does under pop100? User by user, on the same scores.

    .venv/bin/python -m benchmarks.agreement runs/ml-1m-sasrec-softmax runs/data-ml-1m

A model of ours scores all items for the test history of every user. RecBole 1.2.1 (`make envs`)
takes these scores in place of a model's and does all else itself: it splits the log, draws 100
candidates per user by popularity, ranks and averages. Its candidates are then ranked by linrec, and
the two ranks of each user are compared; so are the targets, and the metrics with linrec's own draw.
Writes results/benchmarks/agreement.json and its line of docs/evaluating.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import linrec
from benchmarks.environment import ROOT, environment
from benchmarks.peers.common import Task
from benchmarks.peers.run import answer, write_log
from benchmarks.results import OUT_FOLDER, between, where, write_json
from linrec.data.dataset.splits import leave_one_out
from linrec.data.dataset.store import SequenceStore
from linrec.evaluation.metrics import per_user
from linrec.evaluation.scorer import model_scorer
from linrec.scoring import rank_among

OUT, PAGE = OUT_FOLDER / "agreement.json", ROOT / "docs" / "evaluating.md"
NAMES = ("recall@10", "mrr", "ndcg@10")


def main() -> None:
    args = _arguments()
    torch.set_num_threads(args.threads)
    outcome = {
        "command": "python -m benchmarks.agreement " + " ".join(sys.argv[1:]),
        **environment(),
        "threads": args.threads,
        "model": args.run.name,
        **compare(args.run, linrec.SequenceStore.open(args.data), args.threads),
    }
    write_json(args.out, outcome)
    print(sentences(outcome))
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def compare(run: Path, data: SequenceStore, threads: int) -> dict[str, Any]:
    """RecBole's ranks and metrics beside those of linrec on RecBole's candidates and on its own."""
    model = linrec.load(run)
    test = leave_one_out(data.sequences()).test
    with tempfile.TemporaryDirectory() as folder:
        write_log(data, Path(folder))
        scores = scored(model, data)
        np.save(Path(folder) / "scores.npy", scores)
        task = Task(folder, "softmax", batch=256, eval_batch=4096, threads=threads)
        found = answer("recbole", "recbole", "benchmarks.peers.recbole_pop100", task)
        with np.load(Path(folder) / "recbole-pop100.npz") as saved:
            theirs = {name: saved[name] for name in saved.files}
    rows = np.searchsorted(test.users, theirs["users"])
    assert np.array_equal(test.users[rows], theirs["users"])
    targets = torch.from_numpy(theirs["targets"])
    ranks = rank_among(
        torch.from_numpy(scores[theirs["users"]]), targets, torch.from_numpy(theirs["candidates"])
    ).numpy()
    own = model.evaluate(data, protocol="pop100", baselines=False)
    return {
        "version": found["version"],
        "users": len(rows),
        "same_targets": int((test.targets[rows] == theirs["targets"]).sum()),
        "same_ranks": int((ranks == theirs["ranks"]).sum()),
        "recbole": {name: found["metrics"][name] for name in NAMES},
        "linrec": {name: float(per_user(name, ranks).mean()) for name in NAMES},
        "own_draw": {name: own.metrics[name].mean for name in NAMES},
        "half_width": {name: half_width(own.metrics[name]) for name in NAMES},
    }


def half_width(metric: Any) -> float:
    return float(metric.high - metric.low) / 2


def scored(model: linrec.Recommender, data: SequenceStore) -> np.ndarray:
    """[users, items + 1], float32: the scores after each user's test history."""
    test = leave_one_out(data.sequences()).test
    score, scores = model_scorer(model.model), np.empty((data.n_users, data.n_items + 1), "f4")
    order = np.argsort(-test.histories.lengths, kind="stable")
    with torch.inference_mode():
        for rows in np.array_split(order, max(1, len(order) // 64)):
            scores[test.users[rows]] = score(test.histories.take(rows)).numpy()
    return scores


def sentences(outcome: dict[str, Any]) -> str:
    users = f"{outcome['users']:,}"
    lines = [
        f"{outcome['version']} and linrec give {outcome['same_ranks']:,} of {users} users the same "
        f"rank among RecBole's candidates, and {outcome['same_targets']:,} the same target "
        f"(`{outcome['model']}`, pop100).",
        "",
        "| pop100 | Recall@10 | MRR | NDCG@10 |",
        "|---|---|---|---|",
        _row("RecBole's candidates, ranked by RecBole", outcome["recbole"]),
        _row("RecBole's candidates, ranked by linrec", outcome["linrec"]),
        _row("linrec's candidates, ranked by linrec", outcome["own_draw"]),
        _row("half of the 95 % interval of the last row", outcome["half_width"]),
        "",
        where(outcome),
    ]
    return "\n".join(lines) + "\n"


def _row(label: str, metrics: dict[str, float]) -> str:
    return f"| {label} | " + " | ".join(f"{metrics[name]:.4f}" for name in NAMES) + " |"


def rendered(page: str) -> str:
    """docs/evaluating.md with what stands between its markers replaced."""
    return between(page, "agreement", sentences(json.loads(OUT.read_text("utf-8"))))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of a run that left one event out")
    parser.add_argument("data", type=Path, help="folder of its dataset")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
