"""Callbacks of a training: one line per epoch, TensorBoard if it is installed, a time limit."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from linrec.recommender import Recommender
from linrec.runs.run import Run
from linrec.training import callbacks
from linrec.training.callbacks import Callback, ConsoleProgress, TensorBoardLogger, TimeLimit
from linrec.types import InputError
from tests.training.cases import SMALL, Recorder, digest, history_without_times

ROW = {
    "epoch": 3,
    "loss": 1.25,
    "ndcg@10": 0.5,
    "recall@10": 0.75,
    "seconds": 61.0,
    "valid_seconds": 2.0,
    "learning_rate": 0.001,
}


def png_size(content: bytes) -> tuple[int, int]:
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert content.endswith(b"IEND\xaeB`\x82")
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def test_history_and_curve(run: Path) -> None:
    with (run / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == list(range(1, SMALL["epochs"] + 1))
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert {"ndcg@10", "recall@10", "seconds", "valid_seconds"} <= rows[0].keys()
    width, height = png_size((run / "learning-curve.png").read_bytes())
    assert width > 400
    assert height > 200


def test_no_epoch_no_history(run: Path, tmp_path: Path) -> None:
    opened = Run.open(run)
    Run(tmp_path, opened.description, opened.catalogue).write_history([])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("terminal", [False, True])
def test_the_console_shows_every_epoch(terminal: bool, store) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, width=100)
    Recommender(**SMALL | {"epochs": 2}).fit(store, callbacks=[ConsoleProgress(console)])
    assert shown.getvalue().count("NDCG@10") == 2
    assert "epoch   1  loss " in shown.getvalue()
    assert "best" in shown.getvalue()
    assert ("targets/s" in shown.getvalue()) == terminal


def test_what_is_said_is_not_markup() -> None:
    shown = io.StringIO()
    ConsoleProgress(Console(file=shown)).on_message("the run is in runs/[red]x[/red]")
    assert "runs/[red]x[/red]" in shown.getvalue()


def test_tensorboard_gets_every_figure(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logger = TensorBoardLogger(tmp_path / "tensorboard")
    assert not (tmp_path / "tensorboard").exists()  # the run's folder comes first
    logger.on_epoch_end(ROW, best=True)
    logger.on_train_end()
    found = events.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert set(found.Tags()["scalars"]) == ROW.keys() - {"epoch"}
    assert [(event.step, event.value) for event in found.Scalars("ndcg@10")] == [(3, 0.5)]


def test_tensorboard_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    assert TensorBoardLogger.is_installed()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert not TensorBoardLogger.is_installed()


class StopAfter(Recorder):
    """Asks the trainer to stop after some steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.limit = steps

    def on_batch_end(self, loss: float, targets: int) -> None:
        super().on_batch_end(loss, targets)
        self.stop_training = self.steps >= self.limit


def test_a_callback_stops_the_training_and_it_can_be_resumed(store, tmp_path: Path) -> None:
    settings = SMALL | {"epochs": 3, "dropout": 0.2, "batch_tokens": 64}
    whole, recorder = tmp_path / "whole", Recorder()
    Recommender(**settings).fit(store, whole, callbacks=[recorder])
    per_epoch = recorder.steps // 3
    for steps in (1, per_epoch, per_epoch + 2):  # before, at and after the end of an epoch
        run, callback = tmp_path / f"stopped-{steps}", StopAfter(steps)
        stopped = Recommender(**settings).fit(store, run, callbacks=[callback])
        assert stopped.trained is not None
        assert stopped.trained.interrupted
        assert stopped.test_evaluation is None
        assert callback.steps == steps
        assert callback.ended == 1
        assert Run.open(run).progress.epoch == (steps - 1) // per_epoch
        Recommender(**settings).fit(store, run, resume=True)
        assert digest(run / "model.safetensors") == digest(whole / "model.safetensors")
        assert history_without_times(run).equals(history_without_times(whole))


def test_a_run_folder_is_tested_and_the_callbacks_hear_of_it(store, tmp_path: Path) -> None:
    heard: list[object] = []

    class Listener(Recorder):
        def on_test_batch_end(self, done: int, total: int) -> None:
            heard.append((done, total))

        def on_test_end(self, evaluation: object) -> None:
            heard.append(evaluation)

    found = Recommender(**SMALL | {"epochs": 1}).fit(store, tmp_path / "a", callbacks=[Listener()])
    assert heard[-2:] == [(48, 48), found.test_evaluation]
    heard.clear()
    Recommender(**SMALL | {"epochs": 1}).fit(store, callbacks=[Listener()])
    assert heard == []


@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_per_minute_where_there_is_no_terminal(
    terminal: bool, store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, width=100)
    settings = SMALL | {"epochs": 1}
    Recommender(**settings).fit(store, callbacks=[ConsoleProgress(console)])
    assert "epoch 1/1  " not in shown.getvalue() or terminal  # it took no minute
    monkeypatch.setattr(callbacks, "LINE_SECONDS", 0.0)
    shown.truncate(0)
    Recommender(**settings).fit(store, tmp_path / "run", callbacks=[ConsoleProgress(console)])
    lines = [line for line in shown.getvalue().splitlines() if line.startswith("epoch 1/1  ")]
    if not terminal:
        assert "loss" in lines[0]
        assert any("validating" in line for line in lines)
        assert "testing  100 %" in shown.getvalue()


def test_a_time_limit(store, tmp_path: Path) -> None:
    settings = SMALL | {"epochs": 2, "dropout": 0.2}
    run, whole = tmp_path / "run", tmp_path / "whole"
    found = Recommender(**settings).fit(store, run, callbacks=[TimeLimit(minutes=1e-9)])
    assert found.trained is not None
    assert found.trained.interrupted
    assert found.trained.progress.epoch == 0
    limit = TimeLimit(minutes=60)
    Recommender(**settings).fit(store, run, resume=True, callbacks=[limit])
    Recommender(**settings).fit(store, whole, callbacks=[limit])
    assert digest(run / "model.safetensors") == digest(whole / "model.safetensors")
    for minutes in (0, "5", None, float("nan")):
        with pytest.raises(InputError, match=f"max_minutes={minutes!r} must be a positive number"):
            TimeLimit(minutes)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, [Callback], "mlflow", ["mlflow"], [Callback(), print]])
def test_what_is_no_callback_is_refused_before_anything(given: Any) -> None:
    with pytest.raises(InputError, match=r"callbacks= takes a list of Callback objects.* not "):
        Recommender(**SMALL).fit("no-such-file.csv", callbacks=given)


def test_hooks_around_everything(store) -> None:
    heard: list[object] = []

    class Listener(Recorder):
        def on_fit_start(self) -> None:
            heard.append("start")

        def on_train_start(self, config: object) -> None:
            heard.append(config)

        def on_fit_end(self, *, finished: bool) -> None:
            heard.append(finished)

    found = Recommender(**SMALL | {"epochs": 1}).fit(store, callbacks=[Listener()])
    assert heard == ["start", found.config, True]
    heard.clear()
    with pytest.raises(InputError):
        Recommender(**SMALL).fit("no-such-file.csv", callbacks=[Listener()])
    assert heard == ["start", False]
    heard.clear()
    baseline = Recommender(backbone="popularity").fit(store, callbacks=[Listener()])
    assert heard == ["start", baseline.config, True]
