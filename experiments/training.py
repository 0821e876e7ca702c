"""One cell: train it to its end or as far as it may, evaluate it, write it down."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console

import linrec
from benchmarks.environment import environment
from benchmarks.memory import peak_mb
from benchmarks.results import write_json
from experiments.cells import Cell
from experiments.outcomes import Options, Outcome
from experiments.watch import CellWatch, spent
from linrec.cli.evaluate import evaluate_and_save
from linrec.evaluation import load_ranks, means
from linrec.training.checkpoint import Progress, read_progress
from linrec.training.loop import DivergedError

PROTOCOLS = ("full", "pop100")
METRICS = ("recall@10", "mrr", "ndcg@10")
LENGTHS = (50, 100, 200, 500)
"""Where users are parted by the length of their history."""


def train(cell: Cell, options: Options, data: linrec.SequenceStore, watch: CellWatch) -> bool:
    """Train a cell, or go on with it, and write its outcome; False if Ctrl-C ended it."""
    folder = options.folder(cell)
    settings = cell.asked(options.recipe) | {
        "epochs": options.epochs_of(cell),
        "patience": options.patience_of(cell),
    }
    recommender = linrec.Recommender(**settings)
    found: dict[str, Any] = {}
    try:
        recommender.fit(data, folder, resume=folder.exists(), watch=watch)
    except DivergedError as error:
        found["diverged"] = error.epoch
    progress = read_progress(folder)
    if recommender.trained is not None and recommender.trained.interrupted:
        if not watch.stopped:
            return False
        found |= {"stopped": watch.stopped, "epoch_share": round(watch.share, 4)}
    if progress.best_epoch or not found.get("diverged"):
        found |= evaluated(linrec.load(folder), folder, data)
    described = describe(cell, settings, data, recommender)
    write_json(options.place(cell), described | course(progress) | found)
    return True


def describe(
    cell: Cell, settings: dict[str, Any], data: linrec.SequenceStore, made: linrec.Recommender
) -> Outcome:
    flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in settings.items())
    kept = [
        f"--{name.replace('_', '-')} {n}" for name, n in data.summary["source"]["filters"].items()
    ]
    return {
        "name": cell.name,
        "command": f"linrec train runs/data-{cell.dataset} --out runs/{cell.name} {flags}",
        "data": " ".join(["linrec prepare", data.summary["source"]["name"], "--out",
                          f"runs/data-{cell.dataset}", *kept]),
        "fingerprint": data.fingerprint,
        "seed": made.config.training.seed,
        "config": made.config.as_dict(),
        "linrec": linrec.__version__,
        **environment(),
        "process_peak_mb": round(peak_mb()),
    }  # fmt: skip


def course(progress: Progress) -> Outcome:
    return {
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "seconds": round(spent(progress)),
        "history": [{name: round(value, 6) for name, value in row.items()}
                    for row in progress.history],
    }  # fmt: skip


def evaluated(recommender: linrec.Recommender, folder: Path, data: linrec.SequenceStore) -> Outcome:
    """Figures under both protocols; the ranks of users stay in the run folder."""
    figures, quiet = {}, Console(quiet=True)
    for protocol in PROTOCOLS:
        saved = folder / "evaluation" / f"test-{protocol}.parquet"
        if not saved.exists():
            evaluate_and_save(recommender, folder, quiet, data=data, protocol=protocol)
        evaluation, ranks = load_ranks(saved)
        figures[f"test-{protocol}"] = evaluation.to_dict()
        if protocol == "full":
            groups = by_length(ranks)
    return {"evaluations": figures, "by_length": groups}


def by_length(ranks: pl.DataFrame) -> list[dict[str, Any]]:
    """The figures of users with short, longer and long histories."""
    groups = []
    for low, high in zip((0, *LENGTHS), (*LENGTHS, sys.maxsize), strict=True):
        some = ranks.filter(pl.col("history_length").is_between(low, high, closed="left"))
        if len(some):
            found = means(some["rank"].to_numpy(), (10,))
            upper = None if high == sys.maxsize else high
            figures = {name: found[name] for name in METRICS}
            groups.append({"from": low, "to": upper, "users": len(some), **figures})
    return groups
