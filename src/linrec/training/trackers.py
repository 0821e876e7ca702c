"""Loggers for experiment trackers: settings, the curve of each epoch and the figures on test.

Each logger owns one run of its tracker, from the first step of a training to the end of `fit`. A
training that is resumed becomes another run there; its steps are epochs, so that the curves meet.
A tracker that cannot begin a run is an error before the first step; one that fails later costs its
figures and never the training.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar

from linrec.evaluation import Evaluation
from linrec.files.guard import first_line
from linrec.runs.config import RunConfig
from linrec.runs.history import Row
from linrec.training.callbacks import Callback
from linrec.types import InputError, argument


class Tracker(Callback):
    """What the loggers of all trackers share.

    warn: told what a tracker did not take while a training goes on.
    """

    extra: ClassVar[str]  # of linrec, and the name of the module

    def __init__(self, name: str | None, warn: Callable[[str], None]) -> None:
        self.module, self.name, self.warn = _module(self.extra), name, warn

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """What a tracker refuses at its start is the user's to settle, before anything is trained.

        Each tracker, and each library below it, has errors of its own.
        """
        try:
            yield
        except Exception as error:
            raise InputError(
                f"{self.extra} does not begin a run ({first_line(error)}); correct its own "
                f"settings, or leave {argument('track', self.extra)} out"
            ) from error

    @contextmanager
    def logging(self) -> Iterator[None]:
        """A tracker that is out of reach for a while must not end a training of hours."""
        try:
            yield
        except Exception as error:
            self.warn(f"{self.extra} did not take all figures ({first_line(error)})")


class MLflowLogger(Tracker):
    """To MLflow, where its own settings say (`MLFLOW_TRACKING_URI`); needs `linrec[mlflow]`."""

    extra = "mlflow"

    def __init__(
        self,
        name: str | None = None,
        experiment: str = "linrec",
        warn: Callable[[str], None] = warnings.warn,
    ) -> None:
        super().__init__(name, warn)
        self.experiment = experiment
        self.client: Any = None
        self.run_id = ""

    def on_train_start(self, config: RunConfig) -> None:
        with self.beginning():
            client = self.module.MlflowClient()
            known = client.get_experiment_by_name(self.experiment)
            experiment = (
                client.create_experiment(self.experiment) if known is None else known.experiment_id
            )
            self.run_id = client.create_run(experiment, run_name=self.name).info.run_id
            self.client = client
            for key, value in settings_of_run(config).items():
                client.log_param(self.run_id, key, value)

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        del best
        self._log({key: value for key, value in row.items() if key != "epoch"}, int(row["epoch"]))

    def on_test_end(self, evaluation: Evaluation) -> None:
        self._log(figures_of(evaluation), 0)

    def on_fit_end(self, *, finished: bool) -> None:
        if self.client is not None:
            with self.logging():
                self.client.set_terminated(self.run_id, "FINISHED" if finished else "KILLED")
            self.client = None

    def _log(self, values: Mapping[str, float], step: int) -> None:
        with self.logging():
            for key, value in values.items():
                # the names of MLflow have no @
                self.client.log_metric(self.run_id, key.replace("@", "_at_"), value, step=step)


class WandbLogger(Tracker):
    """To Weights & Biases, as its own settings say (`WANDB_MODE`); needs `linrec[wandb]`."""

    extra = "wandb"

    def __init__(
        self,
        name: str | None = None,
        project: str = "linrec",
        warn: Callable[[str], None] = warnings.warn,
    ) -> None:
        super().__init__(name, warn)
        self.project = project
        self.run: Any = None

    def on_train_start(self, config: RunConfig) -> None:
        with self.beginning():
            self.run = self.module.init(
                project=self.project, name=self.name, config=settings_of_run(config)
            )

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        del best
        with self.logging():
            self.run.log(
                {key: value for key, value in row.items() if key != "epoch"}, int(row["epoch"])
            )

    def on_test_end(self, evaluation: Evaluation) -> None:
        with self.logging():
            self.run.summary.update(figures_of(evaluation))

    def on_fit_end(self, *, finished: bool) -> None:
        if self.run is not None:
            with self.logging():
                self.run.finish(exit_code=0 if finished else 1)
            self.run = None


TRACKERS: dict[str, type[MLflowLogger] | type[WandbLogger]] = {
    "mlflow": MLflowLogger,
    "wandb": WandbLogger,
}
"""By the name of their extra; `linrec train --track` takes these."""


def tracker(name: str, run: str, warn: Callable[[str], None] = warnings.warn) -> Callback:
    """The logger of that name; run: what its run is called."""
    if name not in TRACKERS:
        raise InputError(f"{argument('track', name)} must be {' or '.join(TRACKERS)}")
    return TRACKERS[name](run, warn=warn)


def settings_of_run(config: RunConfig) -> dict[str, Any]:
    """Every setting by its own name; no name is both of the model and of the training."""
    parts = config.as_dict()
    return {**parts["model"], **parts["training"]}


def figures_of(evaluation: Evaluation) -> dict[str, float]:
    """The means on the held-out events, named after their split."""
    return {
        f"{evaluation.split}_{name}": metric.mean for name, metric in evaluation.metrics.items()
    }


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InputError(
            f"{name} is not installed; install it with `pip install 'linrec[{name}]'`, or leave "
            f"{argument('track', name)} out"
        ) from None
