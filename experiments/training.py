"""One cell: train it, evaluate it, write its outcome."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import linrec
from benchmarks.environment import environment
from benchmarks.memory import peak_mb
from benchmarks.results import write_json
from experiments.cells import Cell
from experiments.outcomes import Options, Outcome
from experiments.progress import CellLogger, seconds_spent
from linrec.data.dataset.splits import leave_one_out
from linrec.evaluation import BASELINES, RankOptions, means, rank_targets
from linrec.evaluation.by_gap import seconds_before_target
from linrec.evaluation.comparison import owners_of
from linrec.evaluation.scorer import model_scorer
from linrec.runs.checkpoint import Progress
from linrec.runs.evaluations import evaluation_name
from linrec.runs.run import Run
from linrec.training.loop import DivergedError

PROTOCOLS = ("full", "pop100")
METRICS = ("recall@10", "mrr", "ndcg@10")
LENGTHS = (50, 100, 200, 500)
"""Where users are grouped by the length of their history."""
LONG_LENGTHS = (*LENGTHS, 1_000, 2_000)
"""The same where users come back to items, and histories are longer."""


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
    flags = " ".join(flag(name, value) for name, value in settings.items())
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


def flag(name: str, value: object) -> str:
    """A setting as `linrec train` takes it."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value}"


def learning_curve(progress: Progress) -> Outcome:
    return {
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "seconds": round(seconds_spent(progress)),
        "history": [{name: round(value, 6) for name, value in row.items()}
                    for row in progress.history],
    }  # fmt: skip


def evaluate(recommender: linrec.Recommender, folder: Path, data: linrec.SequenceStore) -> Outcome:
    """Figures under every protocol; the ranks of users stay in the run folder."""
    if recommender.config.seen_in() == "keep":
        return with_baselines(recommender, folder, data)
    figures, run = {}, Run.open(folder)
    groups: list[dict[str, Any]] = []
    for name, chosen in evaluations(recommender).items():
        if not run.has_evaluation(name):
            run.save_evaluation(*recommender.evaluate_users(data, **chosen))
        evaluation, ranks = run.load_evaluation(name)
        figures[name] = evaluation.to_dict()
        groups = groups or by_length(ranks)  # of the first evaluation, which ranks all items
    found: Outcome = {"evaluations": figures, "by_length": groups}
    if recommender.config.model.time_gaps:
        found["with_gaps_of_others"] = with_gaps_of_others(recommender, data)
    return found


def with_baselines(
    recommender: linrec.Recommender, folder: Path, data: linrec.SequenceStore
) -> Outcome:
    """Where seen items are kept: the figures beside those of the baselines.

    Beside a model with a repeat head these are all that fit in memory; they are the same for the
    model without one, which is spared those that take minutes.
    """
    run, name = Run.open(folder), evaluation_name("test", "full", hide_seen=False)
    known = run.load_evaluation(name)[0] if run.has_evaluation(name) else None
    every = recommender.config.as_dict()["model"]["repeat_head"] == "on"
    wanted = BASELINES if every else {}
    if known is None or not {*wanted} <= {*known.baselines, *known.left_out}:
        run.save_evaluation(*recommender.evaluate_users(data, baselines="all" if every else True))
    figures = {name: run.load_evaluation(name)[0].to_dict()}
    if recommender.config.model.time_gaps:
        unknown = recommender.evaluate(data, request_time="unknown", baselines=False)
        figures[f"{name}-unknown-time"] = unknown.to_dict()
    groups = by_length(run.load_evaluation(name)[1], LONG_LENGTHS)
    return {"evaluations": figures, "by_length": groups}


def evaluations(recommender: linrec.Recommender) -> dict[str, dict[str, Any]]:
    """By the name of its files: the options of every evaluation of a run."""
    every: list[dict[str, Any]] = [{"protocol": protocol} for protocol in PROTOCOLS]
    if recommender.config.model.time_gaps:
        every.append({"protocol": "full", "request_time": "unknown"})
    hidden = recommender.config.seen_in() == "hide"
    return {evaluation_name("test", **chosen, hide_seen=hidden): chosen for chosen in every}


def with_gaps_of_others(
    recommender: linrec.Recommender, data: linrec.SequenceStore, seed: int = 0
) -> dict[str, float]:
    """The figures if every user's request comes after the gap of another, randomly chosen user.

    What a model makes of its own request time must be lost then: a figure that stays as high had
    another source than that time.
    """
    test = leave_one_out(data.sequences()).test
    gaps, rows = seconds_before_target(test), test.histories
    assert gaps is not None
    assert rows.times is not None
    newest = rows.times[rows.ends - 1]
    until = newest + np.random.default_rng(seed).permutation(gaps)
    hidden = recommender.config.seen_in() == "hide"
    options = RankOptions(reads=recommender.config.model.max_length, hide_seen=hidden)
    other = replace(test, histories=replace(rows, until=until))
    ranking = rank_targets(model_scorer(recommender.model), data, other, options=options)
    metrics = means(ranking.ranks, (10,))
    return {name: metrics[name] for name in METRICS}


def by_length(ranks: pl.DataFrame, lengths: tuple[int, ...] = LENGTHS) -> list[dict[str, Any]]:
    """The figures of users with short, longer and long histories."""
    groups = []
    for low, high in zip((0, *lengths), (*lengths, sys.maxsize), strict=True):
        some = ranks.filter(pl.col("history_length").is_between(low, high, closed="left"))
        if len(some):
            metrics = means(some["rank"].to_numpy(), (10,), owners_of(some))
            upper = None if high == sys.maxsize else high
            figures = {name: metrics[name] for name in METRICS}
            users = some["user"].n_unique()
            groups.append({"from": low, "to": upper, "users": users, **figures})
    return groups
