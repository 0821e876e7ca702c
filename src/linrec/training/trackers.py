"""Loggers for experiment trackers: settings, the curve of each epoch and the figures on test.

Each logger owns one run of its tracker, from the first step of a training to the end of `fit`. A
training that is resumed becomes another run there; its steps are epochs, so that the curves meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from linrec.evaluation import Evaluation
from linrec.runs.config import RunConfig
from linrec.runs.history import Row
from linrec.training.callbacks import Callback
from linrec.types import InputError, argument


class MLflowLogger(Callback):
    """To MLflow, where its own settings say (`MLFLOW_TRACKING_URI`); needs `linrec[mlflow]`."""

    def __init__(self, name: str | None = None, experiment: str = "linrec") -> None:
        self.mlflow = _tracker("mlflow")
        self.name, self.experiment = name, experiment
        self.client: Any = None
        self.run_id = ""

    def on_train_start(self, config: RunConfig) -> None:
        self.client = self.mlflow.MlflowClient()
        known = self.client.get_experiment_by_name(self.experiment)
        experiment = (
            self.client.create_experiment(self.experiment) if known is None else known.experiment_id
        )
        self.run_id = self.client.create_run(experiment, run_name=self.name).info.run_id
        for key, value in settings_of_run(config).items():
            self.client.log_param(self.run_id, key, value)

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        del best
        self._log({key: value for key, value in row.items() if key != "epoch"}, int(row["epoch"]))

    def on_test_end(self, evaluation: Evaluation) -> None:
        self._log(figures_of(evaluation), 0)

    def on_fit_end(self, *, finished: bool) -> None:
        if self.client is not None:
            self.client.set_terminated(self.run_id, "FINISHED" if finished else "KILLED")
            self.client = None

    def _log(self, values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            # the names of MLflow have no @
            self.client.log_metric(self.run_id, key.replace("@", "_at_"), value, step=step)


class WandbLogger(Callback):
    """To Weights & Biases, as its own settings say (`WANDB_MODE`); needs `linrec[wandb]`."""

    def __init__(self, name: str | None = None, project: str = "linrec") -> None:
        self.wandb = _tracker("wandb")
        self.name, self.project = name, project
        self.run: Any = None

    def on_train_start(self, config: RunConfig) -> None:
        self.run = self.wandb.init(
            project=self.project, name=self.name, config=settings_of_run(config)
        )

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        del best
        self.run.log(
            {key: value for key, value in row.items() if key != "epoch"}, int(row["epoch"])
        )

    def on_test_end(self, evaluation: Evaluation) -> None:
        self.run.summary.update(figures_of(evaluation))

    def on_fit_end(self, *, finished: bool) -> None:
        if self.run is not None:
            self.run.finish(exit_code=0 if finished else 1)
            self.run = None


TRACKERS: dict[str, type[MLflowLogger] | type[WandbLogger]] = {
    "mlflow": MLflowLogger,
    "wandb": WandbLogger,
}
"""By the name of their extra; `linrec train --track` takes these."""


def tracker(name: str, run: str) -> Callback:
    """The logger of that name; run: what its run is called."""
    if name not in TRACKERS:
        raise InputError(f"{argument('track', name)} must be {' or '.join(TRACKERS)}")
    return TRACKERS[name](run)


def settings_of_run(config: RunConfig) -> dict[str, Any]:
    """Every setting by its own name; no name is both of the model and of the training."""
    parts = config.as_dict()
    return {**parts["model"], **parts["training"]}


def figures_of(evaluation: Evaluation) -> dict[str, float]:
    """The means on the held-out events, named after their split."""
    return {
        f"{evaluation.split}_{name}": metric.mean for name, metric in evaluation.metrics.items()
    }


def _tracker(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InputError(
            f"{name} is not installed; install it with `pip install 'linrec[{name}]'`, or leave "
            f"{argument('track', name)} out"
        ) from None
