"""MLflow and Weights & Biases get settings, curves and figures; both write to local files here."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from linrec.recommender import Recommender
from linrec.runs.config import RunConfig
from linrec.training.callbacks import Callback
from linrec.training.trackers import MLflowLogger, WandbLogger, settings_of_run, tracker
from linrec.types import InputError
from tests.training.cases import SMALL

SETTINGS = SMALL | {"epochs": 2}


def test_mlflow(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    place = f"file://{tmp_path}/mlruns"
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
    found = Recommender(**SETTINGS).fit(store, tmp_path / "run", callbacks=[MLflowLogger("monday")])
    assert found.trained is not None
    client = mlflow.MlflowClient(tracking_uri=place)
    experiment = client.get_experiment_by_name("linrec")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "monday"
    assert run.info.status == "FINISHED"
    assert run.data.params["width"] == str(SMALL["width"])
    curve = client.get_metric_history(run.info.run_id, "ndcg_at_10")
    rows = found.trained.progress.history
    assert [(one.step, one.value) for one in curve] == [
        (1, rows[0]["ndcg@10"]),
        (2, rows[1]["ndcg@10"]),
    ]
    assert found.test_evaluation is not None
    assert run.data.metrics["test_recall_at_10"] == found.test_evaluation["recall@10"]

    class Fails(Callback):
        def on_train_end(self) -> None:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        Recommender(**SETTINGS).fit(store, callbacks=[MLflowLogger("bad"), Fails()])
    statuses = {one.info.run_name: one.info.status
                for one in client.search_runs([experiment.experiment_id])}  # fmt: skip
    assert statuses == {"monday": "FINISHED", "bad": "KILLED"}


@pytest.mark.slow
def test_wandb_offline(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    Recommender(**SETTINGS).fit(store, tmp_path / "run", callbacks=[WandbLogger("monday")])
    (written,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    words = (b"monday", b"ndcg@10", b"test_recall@10", b"learning_rate")
    until = time.monotonic() + 60  # another process writes the file
    while not all(word in written.read_bytes() for word in words):
        assert time.monotonic() < until
        time.sleep(0.1)


class FakeRun:
    def __init__(self, **given: Any) -> None:
        self.given, self.logged, self.summary, self.code = given, [], {}, None

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged.append((step, values))

    def finish(self, exit_code: int) -> None:
        self.code = exit_code


def test_what_wandb_is_told(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FakeRun] = []

    class Fake:
        @staticmethod
        def init(**given: Any) -> FakeRun:
            made.append(FakeRun(**given))
            return made[-1]

    monkeypatch.setitem(sys.modules, "wandb", Fake)  # type: ignore[arg-type]
    found = Recommender(**SETTINGS).fit(store, tmp_path / "run", callbacks=[tracker("wandb", "a")])
    assert found.trained is not None
    assert found.test_evaluation is not None
    (run,) = made
    assert (run.given["project"], run.given["name"], run.code) == ("linrec", "a", 0)
    assert run.given["config"]["heads"] == SMALL["heads"]
    assert [step for step, _ in run.logged] == [1, 2]
    assert run.logged[0][1]["loss"] == found.trained.progress.history[0]["loss"]
    assert run.summary["test_ndcg@10"] == found.test_evaluation["ndcg@10"]


def test_every_setting_is_logged_once() -> None:
    config = RunConfig()
    parts = config.as_dict()
    logged = settings_of_run(config)
    assert len(logged) == len(parts["model"]) + len(parts["training"])
    json.dumps(logged)


def test_a_tracker_that_is_missing_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InputError, match=r"mlflow is not installed; .* 'linrec\[mlflow\]'"):
        tracker("mlflow", "run")
    with pytest.raises(InputError, match="track=neptune must be mlflow or wandb"):
        tracker("neptune", "run")
