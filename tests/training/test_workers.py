"""Trainings in several processes: the same result, and an end that leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from linrec.files.atomic import write_bytes
from linrec.training import launching
from linrec.training.launching import check_workers, launch
from linrec.types import InputError
from tests.training.cases import (
    SMALL,
    cycle_with_context,
    digest,
    flags_of,
    history_without_times,
)

SETTINGS: dict[str, Any] = {
    **SMALL, "batch_tokens": 64, "dropout": 0.3, "learning_rate": 1e-3, "epochs": 9,
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def losses(data: Path, out: Path, settings: dict[str, Any], workers: int) -> dict[str, Any]:
    words = [str(data), str(out), json.dumps(settings)]
    script = Path(__file__).with_name("worker_script.py")
    assert launch([sys.executable, str(script), *words], workers) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{}, {"loss": "sampled-softmax", "negatives": 5, "sparse_items": True}], ids=str
)
def test_one_two_and_four_workers_take_the_same_steps(
    dataset: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    alone, *several = (
        losses(dataset, tmp_path / f"{count}.json", {**SETTINGS, **changes}, count)
        for count in (1, 2, 4)
    )
    assert len(alone["losses"]) == 20
    for group in several:
        assert group["losses"] == pytest.approx(alone["losses"], rel=1e-5)
        assert group["ndcg"] == pytest.approx(alone["ndcg"], abs=1e-3)


@pytest.mark.slow
def test_weights_and_context_train_equally(tmp_path: Path) -> None:
    cycle_with_context(tmp_path / "data")
    settings = {**SETTINGS, "weight": "price", "context": "type,price"}
    alone, both = (
        losses(tmp_path / "data", tmp_path / f"{count}.json", settings, count) for count in (1, 2)
    )
    assert both["losses"] == pytest.approx(alone["losses"], rel=1e-5)
    assert both["ndcg"] == pytest.approx(alone["ndcg"], abs=1e-3)


def command(data: Path, out: Path, *more: str) -> list[str]:
    words = ["train", str(data), "--out", str(out), *flags_of(SETTINGS), *more]
    return [sys.executable, "-m", "linrec", *words]


def children(process: subprocess.Popen[str]) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)],
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(word) for word in found.stdout.split()]


def started(process: subprocess.Popen[str], run: Path) -> list[int]:
    """The workers, once they have finished an epoch."""
    until = time.monotonic() + 60
    while not (run / "history.csv").exists() and time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return children(process)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed worker", "ctrl-c"])
def test_resumed_after_an_end_before_its_time(dataset: Path, tmp_path: Path, how: str) -> None:
    long = ("--epochs", "400", "--patience", "400", "--workers", "2")
    run = tmp_path / "run"
    process = subprocess.Popen(
        command(dataset, run, *long), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    workers = started(process, run)
    assert len(workers) == 2
    if how == "ctrl-c":
        process.send_signal(signal.SIGINT)
    else:
        os.kill(max(workers), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert not any(is_alive(worker) for worker in workers)
    if how == "ctrl-c":
        assert process.returncode == 130
        assert errors == ""
    else:
        assert process.returncode == 1
        assert errors.startswith("linrec: worker 2 of 2 was ended by SIGKILL, so the others were")
        assert errors.count("\n") == 1
    rows = len(history_without_times(run))
    epochs = ("--epochs", str(rows + 2), "--patience", "400", "--workers", "2")
    subprocess.run(
        command(dataset, run, *epochs, "--resume"), check=True, capture_output=True, timeout=60
    )
    whole = tmp_path / "whole"
    subprocess.run(command(dataset, whole, *epochs), check=True, capture_output=True, timeout=60)
    assert history_without_times(run).equals(history_without_times(whole))
    assert digest(run / "model.safetensors") == digest(whole / "model.safetensors")


@pytest.mark.slow
def test_torchrun_trains_as_workers_do(dataset: Path, tmp_path: Path) -> None:
    few = ("--epochs", "2", "--patience", "400")
    ours = command(dataset, tmp_path / "ours", *few, "--workers", "2")
    module = command(dataset, tmp_path / "torchrun", *few)[1:]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                "--nproc-per-node", "2", *module]  # fmt: skip
    for words in (ours, torchrun):
        subprocess.run(words, check=True, capture_output=True, timeout=240)
    weights = [digest(tmp_path / name / "model.safetensors") for name in ("ours", "torchrun")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("count", "environment", "sentence"),
    [
        (0, {}, "workers=0 must be at least 1"),
        (10**6, {}, "is too many for"),
        (
            2,
            {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "a",
             "MASTER_PORT": "1"},
            "this is one of 2 processes already",
        ),
    ],
)  # fmt: skip
def test_numbers_of_workers_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, count: int, environment: dict[str, str], sentence: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=sentence):
        check_workers(count)


def test_a_failing_worker_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "PATIENCE", 0.5)
    script = tmp_path / "worker.py"
    write_bytes(
        script,
        b"import os, sys, time\nsys.exit(3) if os.environ['RANK'] == '0' else time.sleep(60)\n",
    )
    began = time.monotonic()
    assert launch([sys.executable, str(script)], 2) == 3
    assert time.monotonic() - began < 30
