"""Trials on a Ray cluster of this machine: the same study, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from linrec.cluster import nodes
from linrec.data.dataset.store import SequenceStore
from linrec.tuning import ray_engine
from linrec.tuning.driver import TuningCallback
from linrec.tuning.options import TuneOptions
from linrec.tuning.tune import tune
from linrec.types import InputError
from tests.training.cases import cycle, flags_of
from tests.tuning.cases import FIXED, SPACE, comparable, space_file

pytest.importorskip("optuna")
ray = pytest.importorskip("ray")
pytestmark = pytest.mark.usefixtures("ray_alone")

ON_RAY: dict[str, Any] = {"space": SPACE, "final": False, "engine": "ray", **FIXED}
CPUS = len(os.sched_getaffinity(0))


def ray_processes() -> set[int]:
    """Raylets, clusters' head processes and workers of this machine, by their command lines."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes()
        except OSError:
            continue
        if b"ray::" in words or b"/raylet" in words or b"gcs_server" in words:
            found.add(int(entry.parent.name))
    return found


def gone(before: set[int]) -> bool:
    until = time.monotonic() + 60
    while ray_processes() - before and time.monotonic() < until:
        time.sleep(0.2)
    return not ray_processes() - before


@pytest.mark.slow
def test_ray_makes_the_study_of_one_process(dataset: Path, tmp_path: Path) -> None:
    before = ray_processes()
    found = tune(dataset, tmp_path / "ray", trials=7, **ON_RAY)
    assert gone(before)
    here = tune(dataset, tmp_path / "here", trials=7, **ON_RAY | {"engine": "local"})
    assert comparable(found).equals(comparable(here))


class Kill(TuningCallback):
    """Kills the worker of a trial in an epoch, once."""

    def __init__(self) -> None:
        self.before, self.done = ray_processes(), False

    def on_epoch_end(self, place: int, epoch: int, epochs: int, value: float) -> None:
        del epochs, value
        if place == 1 and epoch == 1 and not self.done:
            self.done = True
            for process in ray_processes() - self.before:
                title = Path(f"/proc/{process}/cmdline").read_bytes()
                if b"ray::_work" in title:
                    os.kill(process, signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_worker_is_replaced(dataset: Path, tmp_path: Path) -> None:
    before, kill = ray_processes(), Kill()
    found = tune(dataset, tmp_path / "ray", trials=3, callbacks=[kill], **ON_RAY)
    assert kill.done
    assert gone(before)
    here = tune(dataset, tmp_path / "here", trials=3, **ON_RAY | {"engine": "local"})
    assert comparable(found).equals(comparable(here))


@pytest.mark.slow
@pytest.mark.skipif(CPUS < 2, reason="two trials at once need two cores")
def test_no_more_trials_at_once_than_allowed(dataset: Path, tmp_path: Path) -> None:
    class Count(TuningCallback):
        running, most = 0, 0

        def on_trial_start(self, place: int, values: dict[str, Any]) -> None:
            del place, values
            self.running += 1
            self.most = max(self.most, self.running)

        def on_trial_end(self, place: int, outcome: object, study: object) -> None:
            del place, outcome, study
            self.running -= 1

    count = Count()
    found = tune(dataset, tmp_path / "study", trials=5, concurrent=2, callbacks=[count], **ON_RAY)
    assert count.most == 2
    assert sorted(found.trials["trial"]) == list(range(5))


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_leaves_no_process_behind(dataset: Path, tmp_path: Path) -> None:
    space = space_file(tmp_path / "space.toml")
    for number in (signal.SIGINT,):
        before = ray_processes()
        words = ["tune", dataset, "--out", tmp_path / number.name, "--space", space,
                 "--trials", 500, "--engine", "ray", *flags_of(FIXED)]  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-m", "linrec", *map(str, words)], stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("trial   0"):
                break
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(60) == 130
        process.stdout.close()
        assert "the same command continues" in rest
        assert gone(before)


def test_ray_may_be_missing(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Any
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    out = tmp_path / "study"
    sentence = refused("tune", dataset, "--out", out, "--engine", "ray")
    assert "--engine ray needs Ray, which is not installed; `pip install 'linrec[ray]'`" in sentence
    assert not out.exists()


def test_a_cluster_that_does_not_answer(dataset: Path, tmp_path: Path, refused: Any) -> None:
    out = tmp_path / "study"
    words = ["tune", dataset, "--out", out, "--engine", "ray", "--address", "127.0.0.1:9"]
    assert "no Ray cluster answers at --address 127.0.0.1:9 (" in refused(*words)
    assert not out.exists()


def test_too_few_resources_and_a_dataset_in_memory(store: SequenceStore) -> None:
    many = TuneOptions(engine="ray", concurrent=CPUS + 1)
    with (
        pytest.raises(InputError, match=f"needs {CPUS + 1} CPUs, and there are {CPUS}; choose at"),
        ray_engine.cluster(many, store),
    ):
        pass
    with (
        pytest.raises(InputError, match="this one is only in memory"),
        ray_engine.cluster(TuneOptions(engine="ray"), cycle()),
    ):
        pass


@pytest.mark.slow
def test_workers_that_cannot_take_part(
    store: SequenceStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = ray_processes()
    monkeypatch.setattr(nodes, "installed", lambda _: "9.9.9")
    with (
        pytest.raises(InputError, match=r"has linrec .* and this one is 9\.9\.9; install the same"),
        ray_engine.cluster(TuneOptions(engine="ray"), store),
    ):
        pass
    monkeypatch.undo()
    moved = cycle(tmp_path / "data")
    assert moved.path is not None
    moved.path.rename(tmp_path / "elsewhere")
    with (
        pytest.raises(InputError, match=r"cannot see .*; use a path on a file system"),
        ray_engine.cluster(TuneOptions(engine="ray"), moved),
    ):
        pass
    assert gone(before)
