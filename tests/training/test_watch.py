"""What a training shows: a table, a plot, a line an epoch, and TensorBoard where it is."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from linrec.cli.train import _with_tensorboard
from linrec.recommender import Recommender
from linrec.training.history import write_history
from linrec.training.watch import ConsoleWatch, TensorBoardWatch, Watch
from tests.training.cases import SMALL

ROW = {
    "epoch": 3,
    "loss": 1.25,
    "ndcg@10": 0.5,
    "recall@10": 0.75,
    "seconds": 61.0,
    "valid_seconds": 2.0,
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


def test_no_epoch_no_history(tmp_path: Path) -> None:
    write_history(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("terminal", [False, True])
def test_the_console_shows_every_epoch(terminal: bool, store) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=terminal, width=100)
    Recommender(**SMALL | {"epochs": 2}).fit(store, watch=ConsoleWatch(console))
    assert shown.getvalue().count("NDCG@10") == 2
    assert "epoch   1  loss " in shown.getvalue()
    assert "best" in shown.getvalue()
    assert ("targets/s" in shown.getvalue()) == terminal


def test_what_is_said_is_not_markup() -> None:
    shown = io.StringIO()
    ConsoleWatch(Console(file=shown)).say("the run is in runs/[red]x[/red]")
    assert "runs/[red]x[/red]" in shown.getvalue()


def test_tensorboard_gets_every_figure(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    watch = TensorBoardWatch(tmp_path / "tensorboard")
    assert not (tmp_path / "tensorboard").exists()  # the run's folder comes first
    watch.end(ROW, best=True)
    watch.close()
    found = events.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert set(found.Tags()["scalars"]) == ROW.keys() - {"epoch"}
    assert [(event.step, event.value) for event in found.Scalars("ndcg@10")] == [(3, 0.5)]


def test_without_tensorboard_nothing_is_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    watch = Watch()
    assert _with_tensorboard(watch, tmp_path / "run") is watch
    monkeypatch.undo()
    assert _with_tensorboard(watch, tmp_path / "run") is not watch
