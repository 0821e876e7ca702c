"""Time to accuracy, at a size that tells no time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks import accuracy
from benchmarks.peers.common import Goal, Task
from tests.transplant import environments


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everybody walks through the same items in the same order, from somewhere."""
    rng = np.random.default_rng(0)
    rows = [
        (user, (start + step) % 30, 1_000_000 * user + 1_000 * step)
        for user, start in enumerate(rng.integers(0, 30, 60))
        for step in range(12)
    ]
    path = tmp_path_factory.mktemp("accuracy") / "events.csv"
    pl.DataFrame(rows, schema=["user", "item", "time"], orient="row").write_csv(path)
    return path


def measured(
    events: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str
) -> dict[str, Any]:
    out = folder / "accuracy.json"
    given = ["--events", str(events), "--threads", "1", "--out", str(out), *options]
    monkeypatch.setattr(sys, "argv", ["accuracy", *given])
    accuracy.main()
    outcome: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return outcome


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("name", ["rectools-sasrec", "rectools-hstu"])
def test_a_peer_trains_until_its_time_is_up(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if not environments.is_ready("rectools"):
        note = environments.note("rectools")
        pytest.skip(note.read_text() if note.is_file() else "no .envs/rectools: make envs")
    options = ("--models", name, "--goal", "0.99", "--minutes", "0.01")
    (row,) = measured(events, tmp_path, monkeypatch, *options)["rows"]
    assert not row["reached"]
    assert row["seconds"] >= 0.6
    assert 0 <= row["curve"][-1]["ndcg"] < 0.99


@pytest.mark.slow
def test_ours_stops_at_the_goal(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--models", "linrec", "--recipe", "small", "--goal", "0.2", "--minutes", "2")
    outcome = measured(events, tmp_path, monkeypatch, *options)
    (row,) = outcome["rows"]
    assert row["reached"]
    assert row["curve"][-1]["ndcg"] >= 0.2
    assert all(one["ndcg"] < 0.2 for one in row["curve"][:-1])
    assert "| linrec, recipe `default`" in accuracy.table(outcome)


def test_a_model_that_is_late_is_said_to_need_more() -> None:
    rows = [
        {"name": "linrec", "version": "linrec 1", "reached": True, "seconds": 100.0,
         "curve": [{"seconds": 100.0, "ndcg": 0.19}]},
        {"name": "rectools-hstu", "version": "RecTools 1", "reached": False, "seconds": 1200.0,
         "curve": [{"seconds": 1200.0, "ndcg": 0.11}]},
    ]  # fmt: skip
    about = {"users": 1, "items": 2, "events": 3}
    environment = {"threads": 2, "machine": "m", "date": "d", "commit": "c", "command": "x"}
    page = accuracy.table({"goal": 0.18, "dataset": about, "rows": rows, **environment})
    assert "| more than 1,200 | more than 12.0 | 1 | 0.1100 |" in page


def test_a_training_too_short_to_time_has_no_ratio() -> None:
    row = {"name": "linrec", "version": "linrec 1", "reached": True, "seconds": 0.0,
           "curve": [{"seconds": 0.0, "ndcg": 0.19}]}  # fmt: skip
    about = {"users": 1, "items": 2, "events": 3}
    environment = {"threads": 2, "machine": "m", "date": "d", "commit": "c", "command": "x"}
    page = accuracy.table({"goal": 0.18, "dataset": about, "rows": [row], **environment})
    assert "| 0 | - | 1 | 0.1900 |" in page


def test_the_goal_ends_by_figure_or_by_time() -> None:
    goal = Goal(Task("", "", 0, 0, seconds=10, goal=0.5))
    assert not goal.reached
    goal.epoch(4, 0.4)
    assert not goal.reached
    goal.epoch(4, 0.5)
    assert goal.found() == {
        "reached": True,
        "seconds": 8,
        "curve": [{"seconds": 4, "ndcg": 0.4}, {"seconds": 8, "ndcg": 0.5}],
    }
    late = Goal(Task("", "", 0, 0, seconds=10, goal=0.5))
    late.epoch(11, 0.1)
    assert (late.reached, late.is_high) == (True, False)
