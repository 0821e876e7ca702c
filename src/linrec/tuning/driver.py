"""What the process that owns a study does for the trials, wherever they run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from linrec.data.dataset.store import SequenceStore
from linrec.runs.config import RunConfig
from linrec.training.trackers import settings_of_run
from linrec.tuning.options import TuneOptions
from linrec.tuning.search import trial_config
from linrec.tuning.study import Study
from linrec.tuning.trial import Job, Outcome, run_trial
from linrec.types import InputError, LinrecError

LOSSES = 3  # of one trial's workers, after which it is given up


class LostTrialError(LinrecError):
    """The processes of one trial end again and again."""


class TuningCallback:
    """Does nothing; override what you need."""

    def on_message(self, message: str) -> None:
        """A sentence for the user."""

    def on_trial_start(self, place: int, values: dict[str, Any]) -> None:
        """place: from 0.  values: what is tried."""

    def on_epoch_end(self, place: int, epoch: int, epochs: int, value: float) -> None:
        """value: the validation NDCG@10."""

    def on_trial_end(self, place: int, outcome: Outcome, study: Study) -> None:
        """After it was written; one whose outcome `repeats` begins again later."""


@dataclass
class Running:
    trial: Any
    job: Job


class Driver:
    """Hands out trials while there is budget, judges their epochs and records how they ended."""

    def __init__(
        self,
        study: Study,
        config: RunConfig,
        data: SequenceStore | Path,
        options: TuneOptions,
        callbacks: Sequence[TuningCallback] = (),
    ) -> None:
        self.study, self.config, self.data, self.options = study, config, data, options
        self.callbacks = callbacks
        self.running: dict[int, Running] = {}
        self.lost: Counter[int] = Counter()
        self.interrupted = False
        self.spent, self.began = study.seconds, time.monotonic()

    @property
    def seconds(self) -> float:
        return self.spent + time.monotonic() - self.began

    @property
    def seconds_left(self) -> float | None:
        hours = self.options.hours
        return None if hours is None else 3600 * hours - self.seconds

    def next(self) -> Job | None:
        """A trial to run, if there is budget."""
        while self._has_budget():
            trial = self.study.ask()
            place = trial.user_attrs["place"]
            for callback in self.callbacks:
                callback.on_trial_start(place, dict(trial.params))
            job = Job(trial.number, place, {}, self.data, self.seconds_left)
            self.running[trial.number] = Running(trial, job)
            try:
                config = trial_config(self.config, trial.params)
            except InputError:  # values inside of ranges, such as heads that divide no width
                self.done(trial.number, Outcome("impossible"))
                continue
            return replace(job, settings=settings_of_run(config))
        return None

    def _has_budget(self) -> bool:
        left, most = self.seconds_left, self.options.most_trials
        if self.interrupted or (left is not None and left <= 0):
            return False
        finished = self.study.finished
        if most is not None and len(finished) + len(self.running) >= most:
            return False
        epochs = sum(trial.user_attrs.get("epochs", 0) for trial in finished)
        return self.options.total_epochs is None or epochs < self.options.total_epochs

    def judge(self, number: int, epoch: int, value: float) -> bool:
        """Record an epoch; whether the trial is to stop. The last epoch ends it anyway."""
        running, epochs = self.running[number], self.config.training.epochs
        running.trial.report(value, epoch)
        for callback in self.callbacks:
            callback.on_epoch_end(running.job.place, epoch, epochs, value)
        return epoch < epochs and bool(running.trial.should_prune())

    def done(self, number: int, outcome: Outcome) -> None:
        running = self.running.pop(number)
        self.interrupted |= outcome.end == "interrupted"
        self.study.tell(running.trial, outcome)
        self.study.spent(self.seconds)
        for callback in self.callbacks:
            callback.on_trial_end(running.job.place, outcome, self.study)

    def lose(self, number: int, why: str) -> None:
        """Its process has ended; the trial is repeated, but not for ever."""
        place = self.running[number].job.place
        self.lost[place] += 1
        self.done(number, Outcome("interrupted"))
        self.interrupted = False
        if self.lost[place] >= LOSSES:
            raise LostTrialError(
                f"the process of trial {place} ended {LOSSES} times ({why}); see the logs of the "
                "cluster, and run the same command to go on"
            )

    def abandon(self) -> None:
        """Nothing that runs will come to its end: it is repeated when the study goes on."""
        for number in list(self.running):
            self.study.lose(self.running.pop(number).trial)


def run_here(driver: Driver) -> None:
    """One trial after the other in this process."""
    while (job := driver.next()) is not None:
        number = job.number

        def report(epoch: int, value: float, number: int = number) -> bool:
            return driver.judge(number, epoch, value)

        driver.done(number, run_trial(job, report))
