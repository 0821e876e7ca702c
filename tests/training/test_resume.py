"""A run that was cut short, however it was, ends as the uninterrupted one does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.recommender import Recommender, load
from linrec.runs.run import CHECKPOINT, Run
from linrec.training import loop
from linrec.training.callbacks import Callback
from linrec.types import InputError
from tests.training.cases import (
    SMALL,
    Recorder,
    contents,
    cycle,
    digest,
    flags_of,
    history_without_times,
)

pytestmark = pytest.mark.slow
SETTINGS = SMALL | {"epochs": 3, "dropout": 0.2, "batch_tokens": 64}


class PowerCutError(Exception):
    """A power cut, a crash, a kill: nothing of ours gets to run after it."""


def fit(store: SequenceStore, run: Path, *callbacks: Callback, **changes) -> Recommender:
    resume = changes.pop("resume", False)
    return Recommender(**SETTINGS | changes).fit(store, run, resume=resume, callbacks=callbacks)


@pytest.fixture(scope="module")
def whole(store: SequenceStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The uninterrupted run, and how many steps it took."""
    run = tmp_path_factory.mktemp("whole") / "run"
    recorder = Recorder()
    fit(store, run, recorder)
    (run / "steps").write_text(str(recorder.steps))
    return run


def assert_same_run(run: Path, whole: Path) -> None:
    assert digest(run / "model.safetensors") == digest(whole / "model.safetensors")
    assert history_without_times(run).equals(history_without_times(whole))


class At(Recorder):
    """Does something at one step of the training."""

    def __init__(self, step: int, act: Callable[[], object]) -> None:
        super().__init__()
        self.at, self.act = step, act

    def on_batch_end(self, loss: float, targets: int) -> None:
        super().on_batch_end(loss, targets)
        if self.steps == self.at:
            self.act()


def cut() -> None:
    raise PowerCutError


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.5, 0.95])
def test_a_crash_at_any_step(
    share: float, store, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)  # after every step
    steps = int((whole / "steps").read_text())
    with pytest.raises(PowerCutError):
        fit(store, tmp_path / "run", At(max(2, int(share * steps)), cut))
    recorder = Recorder()
    fit(store, tmp_path / "run", recorder, resume=True)
    assert 0 < recorder.steps < steps  # it did go on, and not from the start
    assert_same_run(tmp_path / "run", whole)


def test_a_crash_between_checkpoints_repeats_what_was_lost(
    store, whole: Path, tmp_path: Path
) -> None:
    steps = int((whole / "steps").read_text())
    with pytest.raises(PowerCutError):
        fit(store, tmp_path / "run", At(steps // 2, cut))
    recorder = Recorder()
    fit(store, tmp_path / "run", recorder, resume=True)
    assert steps // 2 < recorder.steps < steps
    assert_same_run(tmp_path / "run", whole)


def test_a_crash_right_after_the_last_checkpoint_still_gets_its_history(
    store, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Run, "write_history", lambda *_: cut())
        with pytest.raises(PowerCutError):
            fit(store, tmp_path / "run", epochs=1)
    assert not (tmp_path / "run" / "history.csv").exists()
    fit(store, tmp_path / "run", epochs=1, resume=True)
    assert history_without_times(tmp_path / "run").equals(history_without_times(whole)[:1])


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("where", ["step_seed", "rank_targets", "write_history"])
def test_ctrl_c_in_the_middle_of_anything(
    where: str, store, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a step, in a validation, between the files: it waits until all agree with each other."""
    owner = Run if where == "write_history" else loop
    usual, calls = getattr(owner, where), []

    def interrupted(*args, **options):
        calls.append(where)
        if len(calls) == 2:
            press_ctrl_c()
        return usual(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(owner, where, interrupted)
        stopped = fit(store, tmp_path / "run")
    assert stopped.trained is not None
    assert stopped.trained.interrupted
    assert stopped.trained.progress.epoch < 3
    assert load(tmp_path / "run").recommend([["i01"]]).table.height
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ended = fit(store, tmp_path / "run", resume=True)
    assert ended.trained is not None
    assert not ended.trained.interrupted
    assert_same_run(tmp_path / "run", whole)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_before_the_first_validation_leaves_a_model(store, tmp_path: Path) -> None:
    stopped = fit(store, tmp_path / "run", At(1, press_ctrl_c))
    assert stopped.trained is not None
    assert stopped.trained.interrupted
    assert stopped.trained.progress.epoch == 0
    kept = load(tmp_path / "run").recommend([["i01", "i02"]])
    assert kept.table.equals(stopped.recommend([["i01", "i02"]]).table)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_without_a_folder_keeps_the_model_in_memory(store) -> None:
    stopped = Recommender(**SETTINGS).fit(store, callbacks=[At(1, press_ctrl_c)])
    assert stopped.trained is not None
    assert stopped.trained.interrupted
    assert len(stopped.recommend([["i01"]], k=3)) == 3


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_does_not_wait(store, whole: Path, tmp_path: Path) -> None:
    def twice() -> None:
        press_ctrl_c()
        press_ctrl_c()

    recorder = At(int((whole / "steps").read_text()) - 1, twice)
    with pytest.raises(KeyboardInterrupt):
        fit(store, tmp_path / "run", recorder)
    fit(store, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", whole)


def test_a_full_disk_halfway_is_one_sentence_and_can_be_resumed(
    store, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        recorder = At(
            int((whole / "steps").read_text()) // 2, lambda: patched.setattr("os.fsync", full)
        )
        with pytest.raises(InputError, match=r"cannot write .*the disk is full"):
            fit(store, tmp_path / "run", recorder)
    assert not list((tmp_path / "run").glob(".*"))  # no half-written draft stays
    fit(store, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", whole)


# --------------------------------------------------------------------- what may be resumed, and how


def test_more_epochs_go_on_from_where_a_finished_run_ended(
    store, whole: Path, tmp_path: Path
) -> None:
    fit(store, tmp_path / "run", epochs=2)
    recorder = Recorder()
    fit(store, tmp_path / "run", recorder, epochs=3, resume=True)
    assert [row["epoch"] for row in recorder.rows] == [3]
    assert_same_run(tmp_path / "run", whole)
    assert load(tmp_path / "run").config.training.epochs == 3


def test_resuming_a_finished_run_changes_nothing(store, whole: Path, tmp_path: Path) -> None:
    fit(store, tmp_path / "run")
    before = digest(tmp_path / "run" / "model.safetensors")
    recorder = Recorder()
    again = fit(store, tmp_path / "run", recorder, resume=True)
    assert recorder.steps == 0
    assert digest(tmp_path / "run" / "model.safetensors") == before
    assert again.recommend([["i01"]]).table.equals(load(whole).recommend([["i01"]]).table)


def test_a_better_model_drops_the_figures_of_the_old_one(store, tmp_path: Path) -> None:
    fit(store, tmp_path / "run", epochs=1)
    stale = tmp_path / "run" / "evaluation" / "test-pop100.parquet"
    stale.parent.mkdir(exist_ok=True)
    stale.write_bytes(b"of epoch 1")
    fit(store, tmp_path / "run", resume=True, epochs=3)
    assert not stale.exists()


def test_another_run_is_not_resumed(store, whole: Path, tmp_path: Path) -> None:
    before = contents(whole)
    with pytest.raises(InputError, match=r"begun with other settings.*only epochs and patience"):
        fit(store, whole, resume=True, width=8)
    with pytest.raises(InputError, match="begun on another dataset"):
        fit(cycle(seed=5), whole, resume=True)
    with pytest.raises(InputError, match="already holds a run; add resume=True"):
        fit(store, whole)
    with pytest.raises(InputError, match="resumed or overwritten, not both"):
        Recommender(**SETTINGS).fit(store, whole, resume=True, overwrite=True)
    with pytest.raises(InputError, match="is not a run"):
        fit(store, tmp_path / "nowhere", resume=True)
    with pytest.raises(InputError, match="nothing to resume without a run folder"):
        Recommender(**SETTINGS).fit(store, resume=True)
    assert contents(whole) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not tensors", None])
def test_a_damaged_checkpoint_is_one_sentence(content, store, tmp_path: Path) -> None:
    fit(store, tmp_path / "run", epochs=1)
    path = tmp_path / "run" / CHECKPOINT
    path.write_bytes(path.read_bytes()[:-9] if content is None else content)
    with pytest.raises(InputError, match=f"{CHECKPOINT} is truncated or corrupt") as refused:
        fit(store, tmp_path / "run", resume=True, epochs=2)
    assert "\n" not in str(refused.value)


def test_a_checkpoint_of_another_model_is_one_sentence(store, tmp_path: Path) -> None:
    fit(store, tmp_path / "a", epochs=1)
    fit(store, tmp_path / "b", epochs=1, width=8)
    (tmp_path / "b" / CHECKPOINT).replace(tmp_path / "a" / CHECKPOINT)
    with pytest.raises(InputError, match=r"does not fit this run .*without resume=True") as refused:
        fit(store, tmp_path / "a", resume=True, epochs=2)
    assert "\n" not in str(refused.value)


def test_a_finished_run_without_its_weights_is_not_passed_off_as_a_model(
    store, tmp_path: Path
) -> None:
    fit(store, tmp_path / "run", epochs=1)
    (tmp_path / "run" / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"model\.safetensors is missing"):
        fit(store, tmp_path / "run", epochs=1, resume=True)


# ----------------------------------------------------------------------------------- real processes

FLAGS = flags_of(SETTINGS | {"epochs": 30, "patience": 30})


# a test run in the background ignores Ctrl-C, and so would its children
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from linrec.cli import main
main()
"""


def start(dataset: Path, run: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-c", PROGRAM, "train", str(dataset), "--out", str(run)),
            *(*FLAGS, *words),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def test_killed_and_resumed_is_the_same_run(dataset: Path, tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = start(dataset, killed)
    wait_for(killed / CHECKPOINT, process)
    time.sleep(0.3)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert 1 <= len(history_without_times(killed)) < 30

    process = start(dataset, killed, "--resume")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    Recommender(**SETTINGS | {"epochs": 30, "patience": 30}).fit(str(dataset), whole)
    assert_same_run(killed, whole)
    assert (killed / "evaluation" / "test-full.parquet").is_file()


def test_ctrl_c_ends_a_process_cleanly(dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(dataset, run, "--epochs", "100000", "--patience", "100000")
    wait_for(run / "model.safetensors", process)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130, output
    assert "Continue with --resume" in output
    assert "Traceback" not in output
    assert len(load(run).recommend([["i01"]], k=3)) == 3
