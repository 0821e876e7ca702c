"""What an epoch costs: time and peak memory, each measurement in a process of its own.

Some steps of a training are timed and scaled to the whole epoch by the events they train on; the
evaluation ranks all users. Run it while nothing else runs. The best of several rounds counts, in
which the attentions take turns, because a machine's speed drifts.
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
from experiments.cells import BACKBONES, COMPARED, Cell
from experiments.datasets import is_given, open_dataset
from experiments.outcomes import Options, Outcome, read
from linrec.training.watch import Stop, Watch

WARM_UP = 2  # steps that are not counted
ITEMS = 3_416  # as many as ML-1M has
BATCH = 8_000  # events in a batch at every length, two histories of the longest
MILLION = 1_000_000


@dataclass(frozen=True)
class Job:
    """One measurement; without a dataset, on made-up histories that are all `length` long."""

    name: str
    settings: dict[str, Any]
    dataset: str = ""
    length: int = 0
    data: str = ""
    steps: int = 20
    threads: int = field(default_factory=torch.get_num_threads)


class StepWatch(Watch):
    """Times steps and ends the training after enough of them."""

    def __init__(self, steps: int) -> None:
        self.wanted, self.steps = steps + WARM_UP, 0
        self.seconds = self.epoch_targets = self.targets = 0.0
        self.last = 0.0

    def begin(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        del epoch, epochs, done
        self.epoch_targets, self.last = targets, time.perf_counter()

    def step(self, loss: float, targets: int) -> None:
        del loss
        now, self.steps = time.perf_counter(), self.steps + 1
        if self.steps > WARM_UP:
            self.seconds, self.targets = self.seconds + now - self.last, self.targets + targets
        self.last = now
        if self.steps >= self.wanted:
            raise Stop

    @property
    def epoch_seconds(self) -> float:
        return self.seconds * self.epoch_targets / max(self.targets, 1)


def measure(job: Job) -> Outcome:
    """In the process it is called in, whose memory it reports."""
    torch.set_num_threads(job.threads)
    data = linrec.SequenceStore.open(Path(job.data)) if job.data else made_up(job)
    recommender, watch = linrec.Recommender(**job.settings), StepWatch(job.steps)
    start = round(peak_mb())
    recommender.fit(data, watch=watch)
    found: Outcome = {
        "train_seconds": round(watch.epoch_seconds, 4),
        "targets": int(watch.epoch_targets),
        "steps": watch.steps - WARM_UP,
        "peak_mb": round(peak_mb()),
        "start_mb": start,
    }
    if job.dataset:
        began = time.perf_counter()
        recommender.evaluate(floors=False)
        found["eval_seconds"] = round(time.perf_counter() - began, 3)
    return found


def made_up(job: Job) -> linrec.SequenceStore:
    """Users with as many events as one window of the length, and the three that are held out."""
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
    """Table 4: for each dataset and backbone, the attentions that take turns."""
    turns = []
    for dataset in ("ml-1m", "gowalla"):
        given = options.data.get(dataset)
        if not is_given(dataset, given, options.runs):
            continue
        place = str(open_dataset(dataset, given, options.runs).path)
        for backbone in BACKBONES:
            cells = [Cell(dataset, backbone, name) for name in COMPARED]
            turns.append([
                Job(cell.name, cell.asked(options.recipe), dataset, 0, place, options.steps)
                for cell in cells
            ])  # fmt: skip
    return turns


def jobs_of_lengths(options: Options) -> list[list[Job]]:
    """The figure: SASRec at the paper's lengths, and on to where long histories end."""
    return [
        [
            Job(
                f"length-{length}-{name}",
                Cell("ml-1m", "sasrec", name).asked(options.recipe)
                | {"max_length": length, "window": length, "positions": length}
                | {"batch_tokens": BATCH},
                "", length, "", options.steps,
            )
            for name in COMPARED
        ]
        for length in options.lengths
    ]  # fmt: skip


def measured(turns: Sequence[Sequence[Job]], folder: Path, options: Options) -> int:
    """Measure what has no result yet; how many that were."""
    count = 0
    for jobs in turns:
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
    found: Outcome = json.loads(done.stdout.splitlines()[-1])
    return found


def timings(folder: Path) -> list[Outcome]:
    found = [read(path) for path in sorted(folder.glob("*.json"))]
    return [one for one in found if one is not None]


if __name__ == "__main__":
    print(json.dumps(measure(Job(**json.loads(sys.argv[1])))))
