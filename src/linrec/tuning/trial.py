"""One trial: a training of which only its validation figures are kept.

It needs no study, so that it can run anywhere: whoever owns the study gets each epoch's figure and
answers whether to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from linrec.data.dataset.store import SequenceStore
from linrec.recommender import Recommender
from linrec.runs.history import Row
from linrec.training.callbacks import Callback, TimeLimit
from linrec.training.loop import DivergedError

METRIC = "ndcg@10"

End = Literal[
    "complete", "pruned", "diverged", "out of memory", "impossible", "out of time", "interrupted"
]  # fmt: skip
Report = Callable[[int, float], bool]
"""Told of an epoch, from 1, and its validation NDCG@10; answers whether to stop."""


@dataclass(frozen=True)
class Job:
    number: int  # of the study's database
    place: int  # from 0: a trial that was lost is repeated in its place
    settings: Mapping[str, Any]  # all of a run
    data: SequenceStore | Path
    seconds: float | None = None  # after which it is stopped


@dataclass(frozen=True)
class Outcome:
    end: End
    value: float | None = None  # the best validation NDCG@10 of all epochs, if it was completed
    best_epoch: int = 0
    epochs: int = 0
    seconds: float = 0.0

    @property
    def repeats(self) -> bool:
        """Whether nothing was learned about the settings, so that they are to be tried again."""
        return self.end in ("out of time", "interrupted")


class Reporting(Callback):
    """Reports each epoch and stops the training if it is told to."""

    def __init__(self, report: Report) -> None:
        self.report, self.epochs = report, 0

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        del best
        self.epochs = int(row["epoch"])
        self.stop_training = self.report(self.epochs, row[METRIC])


def run_trial(job: Job, report: Report) -> Outcome:
    """Train and validate; the test split is never read."""
    reporting, began = Reporting(report), time.monotonic()
    limit = None if job.seconds is None else TimeLimit(max(job.seconds, 1e-3) / 60)
    recommender = Recommender(**job.settings)
    callbacks = [reporting] if limit is None else [reporting, limit]

    def ended(end: End, value: float | None = None, best_epoch: int = 0) -> Outcome:
        seconds = time.monotonic() - began
        return Outcome(end, value, best_epoch, reporting.epochs, seconds)

    try:
        trained = recommender.fit(job.data, callbacks=callbacks).trained
    except DivergedError:
        return ended("diverged")
    except torch.OutOfMemoryError:
        return ended("out of memory")
    assert trained is not None
    if not trained.interrupted:
        return ended("complete", trained.progress.best, trained.progress.best_epoch)
    if reporting.stop_training:
        return ended("pruned")
    in_time = limit is None or not limit.stop_training
    return ended("interrupted" if in_time else "out of time")
