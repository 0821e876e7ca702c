"""The benchmark of the mechanisms still runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import run as bench


def test_the_benchmark_writes_ratios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "EVENTS", 16)
    monkeypatch.setattr(bench, "ITEMS", 20)
    out = tmp_path / "bench.json"
    requested = ["run.py", "--lengths", "8", "--repeats", "1", "--threads", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", requested)
    bench.main()
    rows = json.loads(out.read_text("utf-8"))["rows"]
    assert {row["what"] for row in rows} == {"attention", "training step"}
    assert all(row["times_softmax"] == 1 for row in rows if row["mechanism"] == "softmax")
