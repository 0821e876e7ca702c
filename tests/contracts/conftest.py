"""Each pair is trained once, in a folder, and read by all who ask for it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from linrec.recommender import Recommender
from linrec.runs import history
from linrec.training import loop
from tests.conftest import QUICK
from tests.contracts.cases import TRAINED, cycle, settings
from tests.training.cases import Recorder


@dataclass(frozen=True)
class Fitted:
    backbone: str
    attention: str
    time_gaps: bool
    recommender: Recommender
    run: Path
    killed: Path  # the run as a kill in its last epoch would have left it
    steps: int


class Photographer(Recorder):
    """Copies a run as it lies there in the middle of its last epoch."""

    def __init__(self, run: Path, copy: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.run, self.copy, self.patch = run, copy, patch
        self.steps_of_last = -1

    def on_epoch_start(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        del targets, done
        if epoch == epochs:
            self.steps_of_last = 0
            self.patch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)  # after every step

    def on_batch_end(self, loss: float, targets: int) -> None:
        super().on_batch_end(loss, targets)
        if self.steps_of_last >= 0:
            self.steps_of_last += 1
        if self.steps_of_last == 2:
            shutil.copytree(self.run, self.copy)


def draw_no_curves(patch: pytest.MonkeyPatch) -> None:
    """A curve takes longer to draw than such a model to train."""
    patch.setattr(history, "learning_curve", lambda _: b"")


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_no_curves(monkeypatch)


# `make quick` trains each backbone with the default attention only
MARKED = [
    pytest.param(pair, id="-".join(pair), marks=[] if pair[1] == QUICK else [pytest.mark.slow])
    for pair in TRAINED
]


# of the session and with its pairs, so that pytest puts the tests of a pair next to each other
@pytest.fixture(scope="session", params=MARKED)
def fitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    backbone, attention, *time = request.param
    base = tmp_path_factory.mktemp("pair")
    recommender = Recommender(**settings(backbone, attention, time_gaps=bool(time)))
    with pytest.MonkeyPatch.context() as patch:
        draw_no_curves(patch)
        photographer = Photographer(base / "run", base / "killed", patch)
        recommender.fit(cycle(), base / "run", callbacks=[photographer])
    return Fitted(
        backbone,
        attention,
        bool(time),
        recommender,
        base / "run",
        base / "killed",
        photographer.steps,
    )
