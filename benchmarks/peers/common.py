"""What the measurements of all peers share: the task, the clock and the answer.

A peer is started with a task as JSON in its argument and prints one JSON object. It needs torch,
numpy and its own framework, nothing else.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.memory import peak_mb

LOG = "log"  # RecBole wants a folder and a file of the same name


@dataclass(frozen=True)
class Task:
    """What to measure; the same for every peer but for `variant` and the batches."""

    folder: str  # holds events.npz, and log/log.inter with the same events
    variant: str
    batch: int  # rows of a training batch; for ours, events
    eval_batch: int
    length: int = 200
    width: int = 128
    heads: int = 8
    layers: int = 2
    inner: int = 256
    dropout: float = 0.2
    threads: int = 1
    warm_up: int = 2  # steps
    seconds: float = 60.0  # of training, after that; 0 leaves training out
    k: int = 10
    goal: float = 0.0  # a validation NDCG@k to train to, in at most `seconds`

    @property
    def inter(self) -> Path:
        return Path(self.folder) / LOG / f"{LOG}.inter"

    def histories(self) -> list[np.ndarray]:
        """Every user's items, oldest first, counted from 1."""
        with np.load(Path(self.folder) / "events.npz") as saved:
            return np.split(saved["items"].astype(np.int64), saved["offsets"][1:-1])

    def times(self) -> list[np.ndarray]:
        """The seconds of the same events."""
        with np.load(Path(self.folder) / "events.npz") as saved:
            return np.split(saved["times"], saved["offsets"][1:-1])


class Clock:
    """Targets and seconds of the steps after the warm-up, until it has been long enough."""

    def __init__(self, task: Task) -> None:
        self.warm_up, self.limit = task.warm_up, task.seconds
        self.steps = -task.warm_up
        self.targets, self.seconds, self.began = 0, 0.0, time.perf_counter()

    def step(self, targets: int) -> bool:
        """A step with so many targets is done; whether that is enough."""
        self.steps += 1
        now = time.perf_counter()
        if self.steps <= 0:
            self.began = now
            return False
        self.targets += targets
        self.seconds = now - self.began
        return self.seconds >= self.limit


class Bounded:
    """Batches for another library's loop, until the clock has run out."""

    def __init__(self, batches: Iterable[Any], clock: Clock, count: Callable[[Any], int]) -> None:
        self.batches, self.clock, self.count = batches, clock, count

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            yield batch
            if self.clock.step(self.count(batch)):
                return


class Goal:
    """A learning curve over the seconds of training, up to the goal or the end of the time."""

    def __init__(self, task: Task) -> None:
        self.goal, self.limit = task.goal, task.seconds
        self.curve: list[dict[str, float]] = []
        self.seconds = 0.0

    def epoch(self, seconds: float, ndcg: float) -> None:
        """An epoch took so long, evaluation not counted, and led to such a figure."""
        self.seconds += seconds
        self.curve.append({"seconds": round(self.seconds, 1), "ndcg": round(ndcg, 4)})

    @property
    def reached(self) -> bool:
        """Whether it is over: by the figure, or because the time is up."""
        return bool(self.curve) and (self.is_high or self.seconds >= self.limit)

    @property
    def is_high(self) -> bool:
        return any(one["ndcg"] >= self.goal for one in self.curve)

    def found(self) -> dict[str, Any]:
        return {"reached": self.is_high, "seconds": self.seconds, "curve": self.curve}


def begin_goal() -> tuple[Task, Goal]:
    task = begin()
    return task, Goal(task)


def begin() -> Task:
    task = Task(**json.loads(sys.argv[1]))
    torch.manual_seed(0)
    torch.set_num_threads(task.threads)
    return task


def trained(clock: Clock) -> dict[str, Any]:
    """The figures of a training that has just ended."""
    if not clock.targets:
        raise SystemExit("there were no steps after the warm-up; give more seconds or more data")
    return {
        "steps": clock.steps,
        "targets": clock.targets,
        "train_seconds": clock.seconds,
        "train_peak_mb": peak_mb(),
    }


def timed(job: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    outcome = job()
    return time.perf_counter() - began, outcome


def finish(found: dict[str, Any]) -> None:
    print(json.dumps(found | {"peak_mb": peak_mb(), "torch": torch.__version__}))
