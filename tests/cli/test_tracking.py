"""What a command tells trackers, and how it ends at a limit of time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from linrec.training.callbacks import TimeLimit
from tests.cli.conftest import Command, Refused
from tests.training.cases import SMALL, digest, flags_of

FLAGS = tuple(flags_of(SMALL | {"epochs": 2}))


class FakeWandb:
    """Stands for the module; `fails`: when, of begin and log."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.names, self.logged, self.codes = fails, [], [], []
        self.summary: dict[str, float] = {}

    def init(self, name: str, **_: Any) -> FakeWandb:
        if self.fails == "begin":
            raise RuntimeError("No API key configured.\nUse another line")
        self.names.append(name)
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        if self.fails == "log":
            raise ConnectionError("the tracker is gone")
        self.logged.append((step, values))

    def finish(self, exit_code: int) -> None:
        self.codes.append(exit_code)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)  # type: ignore[arg-type]
    return fake


def test_a_tracker_is_told_once(
    linrec: Command, wandb: FakeWandb, dataset: Path, tmp_path: Path
) -> None:
    words = ("train", dataset, "--out", tmp_path / "monday", *FLAGS)
    result = linrec(*words, "--track", "wandb", "--track", "wandb")
    assert result.code == 0, result.err
    assert wandb.names == ["monday"]
    assert [step for step, _ in wandb.logged] == [1, 2]
    assert wandb.summary["test_ndcg@10"] > 0
    assert wandb.codes == [0]


def test_a_tracker_that_cannot_begin_leaves_nothing(
    refused: Refused, wandb: FakeWandb, dataset: Path, run: Path, tmp_path: Path
) -> None:
    wandb.fails = "begin"
    words = ("train", dataset, "--out", tmp_path / "run", *FLAGS, "--track", "wandb")
    message = refused(*words)
    assert "wandb does not begin a run (No API key configured.); correct" in message
    assert "leave --track wandb out" in message
    assert not (tmp_path / "run").exists()
    before = digest(run / "model.safetensors")
    refused("train", dataset, "--out", run, *FLAGS, "--track", "wandb", "--overwrite")
    assert digest(run / "model.safetensors") == before
    assert list(tmp_path.glob("*")) == []
    assert "track neptune must be mlflow or wandb" in refused(*words[:-1], "neptune")


def test_a_tracker_that_fails_later_ends_no_training(
    linrec: Command, wandb: FakeWandb, dataset: Path, tmp_path: Path
) -> None:
    wandb.fails = "log"
    result = linrec("train", dataset, "--out", tmp_path / "run", *FLAGS, "--track", "wandb")
    assert result.code == 0, result.err
    assert result.out.count("wandb did not take all figures (the tracker is gone)") == 2
    assert "epoch   2" in result.out
    assert wandb.codes == [0]


def test_a_limit_of_time(
    linrec: Command, refused: Refused, dataset: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    words = ("train", dataset, "--out", tmp_path / "run", *FLAGS)
    at_once = linrec(*words, "--max-minutes", "1e-9")
    assert at_once.code == 130
    assert "Stopped before the first epoch was validated; a model that has learned" in at_once.out
    monkeypatch.setattr(TimeLimit, "_look", lambda _: None)
    monkeypatch.setattr(TimeLimit, "on_epoch_end", _stop)
    after_one = linrec(*words, "--max-minutes", 60, "--resume")
    assert after_one.code == 130
    assert "epoch   1" in after_one.out
    assert "Stopped; the best model so far is in" in after_one.out
    assert "--max-minutes 0.0 must be a positive number" in refused(*words, "--max-minutes", 0)
    monkeypatch.undo()
    monkeypatch.setenv("COLUMNS", "160")
    rest = linrec(*words, "--resume")
    assert rest.code == 0, rest.err
    assert "epoch   1" not in rest.out
    assert "epoch   2" in rest.out


def _stop(limit: TimeLimit, *_: object, **__: object) -> None:
    limit.stop_training = True
