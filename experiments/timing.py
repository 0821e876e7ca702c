"""What an epoch costs: time and peak memory, each measurement in its own process.

Some steps of a training are timed and scaled to the whole epoch by their number of targets; the
evaluation ranks all users. Run it while nothing else runs. The fastest of several rounds counts, in
which the attentions alternate, because the speed of a machine drifts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

import linrec
from benchmarks.environment import ROOT, environment
from benchmarks.memory import peak_mb
from benchmarks.results import write_json
from experiments.cells import BACKBONES, COMPARED, REACH_EPOCHS, Cell, reach
from experiments.datasets import is_given, open_dataset
from experiments.outcomes import Options, Outcome, read
from linrec.training.callbacks import Callback

WARM_UP = 2  # steps that are not timed
ITEMS = 3_416  # as many as ML-1M has
BATCH = 8_000  # events per batch at every length, two histories of the longest
MILLION = 1_000_000


@dataclass(frozen=True)
class Job:
    """One measurement; without data, on synthetic histories of `length` events.

    The evaluation is timed too where the dataset is named.
    """

    name: str
    settings: dict[str, Any]
    dataset: str = ""
    length: int = 0
    data: str = ""
    steps: int = 20
    threads: int = field(default_factory=torch.get_num_threads)


class StepTimer(Callback):
    """Times steps and ends the training after the last of them."""

    def __init__(self, steps: int) -> None:
        self.max_steps, self.steps = steps + WARM_UP, 0
        self.seconds = self.epoch_targets = self.targets = 0.0
        self.last = 0.0

    def on_epoch_start(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        del epoch, epochs, done
        self.epoch_targets, self.last = targets, time.perf_counter()

    def on_batch_end(self, loss: float, targets: int) -> None:
        del loss
        now, self.steps = time.perf_counter(), self.steps + 1
        if self.steps > WARM_UP:
            self.seconds, self.targets = self.seconds + now - self.last, self.targets + targets
        self.last = now
        self.stop_training = self.steps >= self.max_steps

    @property
    def epoch_seconds(self) -> float:
        return self.seconds * self.epoch_targets / max(self.targets, 1)


def measure(job: Job) -> Outcome:
    """Measure in this process, whose peak memory is reported."""
    torch.set_num_threads(job.threads)
    data = linrec.SequenceStore.open(Path(job.data)) if job.data else synthetic(job)
    recommender, timer = linrec.Recommender(**job.settings), StepTimer(job.steps)
    start = round(peak_mb())
    recommender.fit(data, callbacks=[timer])
    figures: Outcome = {
        "train_seconds": round(timer.epoch_seconds, 4),
        "targets": int(timer.epoch_targets),
        "steps": timer.steps - WARM_UP,
        "peak_mb": round(peak_mb()),
        "start_mb": start,
    }
    if job.dataset:
        began = time.perf_counter()
        recommender.evaluate(baselines=False)
        figures["eval_seconds"] = round(time.perf_counter() - began, 3)
    return figures


def synthetic(job: Job) -> linrec.SequenceStore:
    """Users with one window of `length` events, and the three events that are held out."""
    events = job.length + 3
    users = -(-(job.steps + WARM_UP) * BATCH // job.length)
    frame = pl.DataFrame(
        {
            "user": np.repeat(np.arange(users), events),
            "item": np.random.default_rng(0).integers(0, ITEMS, users * events),
            "time": np.tile(np.arange(events), users),
        }
    )
    return linrec.prepare(frame)


def jobs_of_backbones(options: Options) -> list[list[Job]]:
    """Table 4: for each dataset and backbone, the attentions that alternate."""
    groups = []
    for dataset in ("ml-1m", "gowalla"):
        given = options.data.get(dataset)
        if not is_given(dataset, given, options.runs):
            continue
        path = str(open_dataset(dataset, given, options.runs).path)
        for backbone in BACKBONES:
            cells = [Cell(dataset, backbone, name) for name in COMPARED]
            groups.append([
                Job(cell.name, cell.settings(options.recipe), dataset, 0, path, options.steps)
                for cell in cells
            ])  # fmt: skip
    return groups


def jobs_of_reach(options: Options) -> list[list[Job]]:
    """What each row of the tables on long histories costs to train."""
    groups = []
    for dataset in REACH_EPOCHS:
        given = options.data.get(dataset)
        if is_given(dataset, given, options.runs):
            path = str(open_dataset(dataset, given, options.runs).path)
            groups.append([
                Job(cell.name, cell.settings(options.recipe), "", 0, path, options.steps)
                for cell in reach(dataset)
            ])  # fmt: skip
    return groups


def jobs_of_lengths(options: Options) -> list[list[Job]]:
    """The figure: SASRec at the paper's lengths and far beyond them."""
    return [
        [
            Job(
                f"length-{length}-{name}",
                Cell("ml-1m", "sasrec", name).settings(options.recipe)
                | {"max_length": length, "window": length, "positions": length}
                | {"batch_tokens": BATCH},
                "", length, "", options.steps,
            )
            for name in COMPARED
        ]
        for length in options.lengths
    ]  # fmt: skip


def measure_all(groups: Sequence[Sequence[Job]], folder: Path, options: Options) -> int:
    """Measure what has no result yet; returns the number of measurements."""
    count = 0
    for jobs in groups:
        if all((folder / f"{job.name}.json").exists() for job in jobs):
            continue
        rounds: dict[str, list[Outcome]] = {job.name: [] for job in jobs}
        for _ in range(options.rounds):
            for job in jobs:
                rounds[job.name].append(_in_own_process(job))
        for job in jobs:
            write_json(folder / f"{job.name}.json", _best(job, rounds[job.name]))
        count += len(jobs)
    return count


def _best(job: Job, rounds: list[Outcome]) -> Outcome:
    best: Outcome = {
        name: min(one[name] for one in rounds)
        for name in ("train_seconds", "eval_seconds", "peak_mb", "start_mb")
        if name in rounds[0]
    }
    described = {name: value for name, value in asdict(job).items() if name != "data"}
    return {**described, **environment(), "threads": job.threads, **best, "rounds": rounds}


def _in_own_process(job: Job) -> Outcome:
    done = subprocess.run(
        [sys.executable, "-m", "experiments.timing", json.dumps(asdict(job))],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    figures: Outcome = json.loads(done.stdout.splitlines()[-1])
    return figures


def timings(folder: Path) -> list[Outcome]:
    outcomes = [read(path) for path in sorted(folder.glob("*.json"))]
    return [one for one in outcomes if one is not None]


if __name__ == "__main__":
    print(json.dumps(measure(Job(**json.loads(sys.argv[1])))))
