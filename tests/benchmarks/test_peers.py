"""The measurements of peers: what they speak, what the page says; at sizes that tell no time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import linrec
from benchmarks import agreement
from benchmarks.peers import page, run
from benchmarks.peers.common import Bounded, Clock, Task
from tests.transplant import environments

TINY = "--seconds 0.05 --warm-up 0 --threads 1 --length 8 --width 8 --heads 2 --inner 16"


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(40), rng.integers(8, 20, 40))
    table = pl.DataFrame(
        {"user": users, "item": rng.integers(0, 12, len(users)), "time": np.arange(len(users))}
    )
    place = tmp_path_factory.mktemp("peers") / "events.csv"
    table.write_csv(place)
    return place


def measured(
    events: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *peers: str
) -> dict[str, Any]:
    out = folder / "peers.json"
    arguments = ["--events", str(events), *TINY.split(), "--out", str(out), "--peers", *peers]
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    run.main()
    found: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return found


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize(
    "peer", ["linrec-decay", "default", "recbole-linrec", "rectools", "replay"]
)
def test_a_peer_answers(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer: str
) -> None:
    module = run.PEERS[peer][0]
    if module != "ours" and not environments.is_ready(module):
        note = environments.note(module)
        pytest.skip(
            note.read_text() if note.is_file() else f".envs/{module} is not there: make envs"
        )
    found = measured(events, tmp_path, monkeypatch, peer)
    assert {"commit", "date", "machine", "torch", "command", "shape"} <= found.keys()
    assert found["dataset"]["users"] == 40
    row = found["rows"][0]
    assert (row["name"], row["users"]) == (peer, 40)
    assert row["targets"] > 0
    for figure in ("seconds_a_million", "train_peak_mb", "eval_seconds"):
        assert row[figure] > 0
    assert all(0 <= value <= 1 for value in row["metrics"].values())
    assert page.TITLES[peer] in page.table(found)


def test_the_clock_counts_after_the_warm_up_and_stops() -> None:
    task = Task("", "", batch=1, eval_batch=1, warm_up=2, seconds=0.0)
    clock = Clock(task)
    seen = list(Bounded([10, 20, 30, 40, 50], clock, lambda batch: batch))
    assert seen == [10, 20, 30]
    assert (clock.steps, clock.targets) == (1, 30)


def test_the_best_times_and_the_highest_peak_of_several_turns() -> None:
    first = {"eval_seconds": 3.0, "train_peak_mb": 5.0, "version": "x"}
    second = {"eval_seconds": 4.0, "train_peak_mb": 6.0, "version": "x"}
    assert run.better(None, first) == first
    assert run.better(first, second) == {"eval_seconds": 3.0, "train_peak_mb": 6.0, "version": "x"}


def test_every_figure_is_told_as_a_multiple_of_ours() -> None:
    found = {
        "rectools": {"seconds_a_million": 355.0, "eval_seconds": 20.0},
        "linrec-decay": {"seconds_a_million": 35.5, "eval_seconds": 8.0},
    }
    rows = page.with_ratios(found, "linrec-decay")
    assert [row["seconds_a_million_ratio"] for row in rows] == [10.0, 1.0]
    assert rows[0]["eval_seconds_ratio"] == 2.5
    assert "355 (10 x)" in page._cell(rows[0], "seconds_a_million")


def test_the_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PLOT", tmp_path / "bars.png")
    page.plot([{"name": "replay", "eval_seconds": 20.0}, {"name": "linrec", "eval_seconds": 2.0}])
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.peer
def test_recbole_ranks_as_linrec_does(events: Path, tmp_path: Path) -> None:
    if not environments.is_ready("recbole"):
        pytest.skip(".envs/recbole is not there: make envs")
    data = linrec.prepare(events, tmp_path / "data")
    settings = {"recipe": "small", "epochs": 1, "width": 8, "heads": 2, "seen": "hide"}
    linrec.Recommender(**settings).fit(data, tmp_path / "run")
    found = agreement.compare(tmp_path / "run", data, threads=1)
    assert found["users"] == found["same_targets"] == found["same_ranks"] == 40
    assert found["recbole"] == pytest.approx(found["linrec"], abs=1e-4)  # RecBole rounds
    assert "40 of 40 users" in agreement.sentences(
        found | {"model": "run", "threads": 1, "machine": "m", "date": "d", "commit": "c",
                 "command": "x"}
    )  # fmt: skip


def test_the_page_says_what_the_results_say() -> None:
    page = agreement.PAGE.read_text("utf-8")
    assert agreement.rendered(page) == page
