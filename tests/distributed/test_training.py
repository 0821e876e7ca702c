"""Trainings on Ray: the weights of `--workers` here, also when a worker or a machine is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from linrec.cluster import nodes
from linrec.cluster.options import EngineOptions
from linrec.distributed.training import train_on_ray
from linrec.distributed.worker import Job
from linrec.evaluation import Evaluation
from linrec.runs.history import Row
from linrec.training.callbacks import Callback
from linrec.types import InputError
from tests.training.cases import SMALL, digest, flags_of, history_without_times

MB = 1024**2
SETTINGS: dict[str, Any] = {
    **SMALL, "batch_tokens": 64, "dropout": 0.3, "learning_rate": 1e-3, "epochs": 60,
    "patience": 60,
}  # fmt: skip
ray = pytest.importorskip("ray", reason="needs linrec[ray]")
slow = [pytest.mark.slow, pytest.mark.usefixtures("ray_alone", "one_thread_each")]


@pytest.fixture(scope="module")
def one_thread_each() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def cluster(ray_alone: None, one_thread_each: None) -> Iterator[Any]:
    """Two machines of one CPU each, as processes here; gone after the test."""
    del ray_alone, one_thread_each
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 * MB, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={**small})
    made.add_node(**small)
    made.wait_for_nodes()
    try:
        yield made
    finally:
        made.shutdown()


def command(data: Path, out: Path, *more: str) -> list[str]:
    words = ["train", str(data), "--out", str(out), *flags_of(SETTINGS), *more]
    return [sys.executable, "-m", "linrec", *words]


@pytest.fixture(scope="module")
def whole(dataset: Path, tmp_path_factory: pytest.TempPathFactory, one_thread_each: None) -> Path:
    """The run of two workers of this machine, without Ray."""
    del one_thread_each
    out = tmp_path_factory.mktemp("whole") / "run"
    subprocess.run(
        command(dataset, out, "--workers", "2"), check=True, capture_output=True, timeout=300
    )
    return out


def job(data: Path, out: Path, **changes: Any) -> Job:
    return Job(data=data, out=out, recipe="default", start=None, settings=SETTINGS | changes)


def workers_here() -> list[int]:
    """The processes of Ray that train."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            title = (place / "cmdline").read_bytes() if place.name.isdecimal() else b""
        except OSError:
            continue
        if title.startswith(b"ray::TrainingWorker"):
            found.append(int(place.name))
    return found


class Losing(Callback):
    """Kills a worker after one epoch, and a machine after a later one; another one takes over."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.messages, self.ended = cluster, list[str](), 0
        self.epochs: list[int] = []
        self.tested = False

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        del best
        self.epochs.append(int(row["epoch"]))
        if not self.messages and self.epochs[-1] >= 2 and self.ended == 0:
            self.ended = 1
            os.kill(max(workers_here()), signal.SIGKILL)
        elif len(self.messages) == 1 and self.ended == 1:
            self.ended = 2
            (machine,) = set(self.cluster.worker_nodes)
            self.cluster.remove_node(machine, allow_graceful=False)
            self.cluster.add_node(num_cpus=1, object_store_memory=80 * MB)

    def on_test_end(self, evaluation: Evaluation) -> None:
        del evaluation
        self.tested = True

    def on_message(self, message: str) -> None:
        if "was lost" in message:
            self.messages.append(message)


class TestOnACluster:
    pytestmark = slow

    def test_lost_workers_and_machines_change_nothing(
        self, cluster: Any, dataset: Path, whole: Path, tmp_path: Path
    ) -> None:
        losing = Losing(cluster)
        engine = EngineOptions(engine="ray", address=cluster.address, workers=2)
        finished = train_on_ray(job(dataset, tmp_path / "run"), engine, [losing])
        assert [words[:40] for words in losing.messages] == [
            "A worker was lost; all start again from "
        ] * 2
        assert "(2 of at most 10 times)" in losing.messages[1]
        assert finished.evaluation is not None
        assert losing.tested
        assert not workers_here()
        assert not ray.is_initialized()
        assert history_without_times(tmp_path / "run").equals(history_without_times(whole))
        for name in ("model.safetensors", "evaluation/test-full.parquet"):
            assert digest(tmp_path / "run" / name) == digest(whole / name)

    def test_what_a_cluster_cannot_do_is_one_sentence(
        self, cluster: Any, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine = EngineOptions(engine="ray", address=cluster.address, workers=2)

        def refused(words: str, engine: EngineOptions, **settings: Any) -> None:
            with pytest.raises(InputError, match=words) as caught:
                train_on_ray(job(dataset, tmp_path / "run", **settings), engine)
            assert "\n" not in str(caught.value)
            assert not (tmp_path / "run").exists()
            assert not ray.is_initialized()

        refused("workers=9 need a CPU each, and the Ray", replace(engine, workers=9))
        refused(
            "workers=2 need a GPU each, and the Ray cluster has 0; train", engine, device="cuda"
        )
        refused("compiled steps draw dropout", engine, compile=True)  # what a worker finds
        assert not workers_here()
        monkeypatch.setattr(nodes, "installed", lambda _: "99.0")
        refused("and this one is 99.0; install the same version on both", engine)


def descendants(process: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}
    found, frontier = [], [process]
    while frontier:
        frontier = [pid for pid, parent in parents.items() if parent in frontier]
        found += frontier
    return found


def all_gone(processes: list[int], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(Path(f"/proc/{process}").exists() for process in processes):
            return True
        time.sleep(0.1)
    return False


class TestOnThisMachine:
    pytestmark = slow

    def test_ctrl_c_ends_all_and_resume_continues(
        self, dataset: Path, whole: Path, tmp_path: Path
    ) -> None:
        run = tmp_path / "run"
        more = ("--engine", "ray", "--workers", "2")
        process = subprocess.Popen(
            command(dataset, run, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        until = time.monotonic() + 120
        while not (run / "history.csv").exists() and time.monotonic() < until:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        started = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said, errors = process.communicate(timeout=60)
        assert process.returncode == 130, (said, errors)
        assert "epoch   1" in said  # what the first worker does is shown here
        assert "Continue with --resume." in said
        assert errors == ""
        assert len(started) > 2
        assert all_gone(started, 20)
        assert len(history_without_times(run)) < SETTINGS["epochs"]
        resumed = command(dataset, run, "--workers", "2", "--resume")
        subprocess.run(resumed, check=True, capture_output=True, timeout=300)
        assert digest(run / "model.safetensors") == digest(whole / "model.safetensors")


@pytest.mark.parametrize(
    ("changes", "engine", "words"),
    [
        ({}, {"workers": 10**4}, "workers=10000 need a CPU each, and this machine has"),
        ({}, {"address": "127.0.0.1:1"}, "no Ray cluster answers at address=127.0.0.1:1"),
        ({"settings": {"backbone": "popularity"}}, {}, "is counted in one pass"),
        ({"data": Path("nowhere")}, {}, "nowhere does not exist"),
        ({"recipe": "nowhere.toml"}, {}, "cannot read recipe nowhere.toml"),
        ({"resume": True, "overwrite": True}, {}, "resumed or overwritten, not both"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_before_anything_starts(
    dataset: Path, tmp_path: Path, changes: dict[str, Any], engine: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        train_on_ray(
            replace(job(dataset, tmp_path / "run"), **changes),
            EngineOptions(engine="ray", **engine),
        )
    assert not (tmp_path / "run").exists()


def test_a_worker_of_torchrun_starts_no_others(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    for name, value in zip(names, ("2", "0", "0", "here", "1"), strict=True):
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="this is one of 2 processes already"):
        train_on_ray(job(dataset, tmp_path / "run"), EngineOptions(engine="ray"))


def test_ray_is_only_imported_when_it_is_asked_for(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'linrec\[ray\]'"):
        train_on_ray(job(dataset, tmp_path / "run"), EngineOptions(engine="ray"))


def test_an_engine_that_does_not_exist() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "linrec", "train", "data", "--out", "run", "--engine", "spark"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.startswith("linrec: ")
    assert ended.stderr.count("\n") == 1
