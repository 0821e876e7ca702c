"""The benchmark measures what it says, at a size where nothing is to be learned from it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks import serving, serving_load
from linrec.serving import Engine, open_store
from tests.serving.serving_process import within


def test_the_generator_counts_what_was_answered(run: Path) -> None:
    engine = Engine(run, open_store("memory"))
    with within(engine) as url:
        plan = {
            "port": int(url.rsplit(":", 1)[1]), "connections": 3, "seconds": 60, "most": 20,
            "requests": [serving.event("a", "i01"), serving.recommend_request("a")],
        }  # fmt: skip
        found = asyncio.run(serving_load.load(plan))
        assert engine.user("a").events == 10  # every event has an id of its own
        wrong = asyncio.run(serving_load.load(plan | {"requests": [["/v1/events", {}]], "most": 4}))
    assert (found["failed"], wrong["failed"]) == (0, 4)
    assert found["all"]["requests"] == 20
    assert [each["requests"] for each in found["each"]] == [10, 10]
    assert found["all"]["p99_ms"] >= found["all"]["p50_ms"] > 0


def test_the_tables(tmp_path: Path) -> None:
    times = {"requests": 5, "p50_ms": 1.0, "p99_ms": 2.0}
    outcome = {
        "command": "python", "date": "today", "machine": "m", "threads": 1, "commit": "c",
        "items": 10, "load": [{"kind": "events", "connections": 8, "a_second": 9.0} | times],
        "history": [
            {"way": way, "kind": kind, "length": length} | times
            for way in serving.WAYS for length in (10, 1000)
            for kind in ("events", "recommendations")
        ],
        "ann": {"items": 5, "vectors": "drawn", "recall_at_10": 1, "ann_ms": 1.0, "exact_ms": 2.0},
    }  # fmt: skip
    message = serving.tables(outcome)
    assert "| events | 8 | 9 | 1.0 | 2.0 |" in message
    assert "p99 at 1,000 events against 10: state, events: 1.00 x" in message
    assert "recall@10 1.000" in message
    serving.plot(outcome["history"], tmp_path / "plot.png")  # type: ignore[arg-type]
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_recall_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(serving, "SIZE", {})
    monkeypatch.setattr(sys, "argv", ["serving", "--ann-items", "300", "--ann-users", "3"])
    found = serving.ann(tmp_path, serving._arguments())
    assert found["items"] == 300
    assert 0.5 < found["recall_at_10"] <= 1
