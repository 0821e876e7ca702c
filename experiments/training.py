"""One cell: train it, evaluate it, write its outcome."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl

import linrec
from benchmarks.environment import environment
from benchmarks.memory import peak_mb
from benchmarks.results import write_json
from experiments.cells import Cell
from experiments.outcomes import Options, Outcome
from experiments.progress import CellLogger, seconds_spent
from linrec.evaluation import means
from linrec.runs.checkpoint import Progress
from linrec.runs.run import Run
from linrec.training.loop import DivergedError

PROTOCOLS = ("full", "pop100")
METRICS = ("recall@10", "mrr", "ndcg@10")
LENGTHS = (50, 100, 200, 500)
"""Where users are grouped by the length of their history."""


def train(cell: Cell, options: Options, data: linrec.SequenceStore, logger: CellLogger) -> bool:
    """Train or resume a cell and write its outcome; False if Ctrl-C ended it.

    The budget is the number of epochs alone: early stopping would give each cell its own.
    """
    folder, epochs = options.folder(cell), options.epochs_of(cell)
    settings = cell.settings(options.recipe) | {"epochs": epochs, "patience": epochs}
    recommender = linrec.Recommender(**settings)
    ending: Outcome = {}
    try:
        recommender.fit(data, folder, resume=folder.exists(), callbacks=[logger])
    except DivergedError as error:
        ending["diverged"] = error.epoch
    if recommender.trained is not None and recommender.trained.interrupted:
        if not logger.stopped:
            return False
        ending |= {"stopped": logger.stopped, "epoch_share": round(logger.share, 4)}
    progress = Run.progress_of(folder)
    if logger.stopped != "hours" or _is_further(progress, options.outcome(cell)):
        if progress.best_epoch or "diverged" not in ending:
            ending |= evaluate(linrec.load(folder), folder, data)
        described = describe(cell, settings, data, recommender)
        write_json(options.path(cell), described | learning_curve(progress) | ending)
    return True


def _is_further(progress: Progress, known: Outcome | None) -> bool:
    """An unfinished run does not replace the figures of a longer one."""
    return known is None or progress.epoch >= known["epochs"]


def describe(
    cell: Cell, settings: dict[str, Any], data: linrec.SequenceStore, made: linrec.Recommender
) -> Outcome:
    flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in settings.items())
    filters = [
        f"--{name.replace('_', '-')} {n}" for name, n in data.summary["source"]["filters"].items()
    ]
    return {
        "name": cell.name,
        "command": f"linrec train runs/data-{cell.dataset} --out runs/{cell.name} {flags}",
        "data": " ".join(["linrec prepare", Path(data.summary["source"]["name"]).name, "--out",
                          f"runs/data-{cell.dataset}", *filters]),
        "fingerprint": data.fingerprint,
        "seed": made.config.training.seed,
        "config": made.config.as_dict(),
        "linrec": linrec.__version__,
        **environment(),
        "process_peak_mb": round(peak_mb()),
    }  # fmt: skip


def learning_curve(progress: Progress) -> Outcome:
    return {
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "seconds": round(seconds_spent(progress)),
        "history": [{name: round(value, 6) for name, value in row.items()}
                    for row in progress.history],
    }  # fmt: skip


def evaluate(recommender: linrec.Recommender, folder: Path, data: linrec.SequenceStore) -> Outcome:
    """Figures under both protocols; the ranks of users stay in the run folder."""
    figures, run = {}, Run.open(folder)
    for protocol in PROTOCOLS:
        name = f"test-{protocol}"
        if not run.has_evaluation(name):
            run.save_evaluation(*recommender.evaluate_users(data, protocol=protocol, seen="hide"))
        evaluation, ranks = run.load_evaluation(name)
        figures[name] = evaluation.to_dict()
        if protocol == "full":
            groups = by_length(ranks)
    return {"evaluations": figures, "by_length": groups}


def by_length(ranks: pl.DataFrame) -> list[dict[str, Any]]:
    """The figures of users with short, longer and long histories."""
    groups = []
    for low, high in zip((0, *LENGTHS), (*LENGTHS, sys.maxsize), strict=True):
        some = ranks.filter(pl.col("history_length").is_between(low, high, closed="left"))
        if len(some):
            metrics = means(some["rank"].to_numpy(), (10,))
            upper = None if high == sys.maxsize else high
            figures = {name: metrics[name] for name in METRICS}
            groups.append({"from": low, "to": upper, "users": len(some), **figures})
    return groups
