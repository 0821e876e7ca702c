"""The figures on the pages are the ones in results/, and the code that makes them still runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import run as bench
from experiments import ml_1m

PAGES = [ml_1m.ROOT / "README.md", ml_1m.ROOT / "docs" / "results.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_figure_on_a_page_was_typed_in(page: Path) -> None:
    text = page.read_text("utf-8")
    assert "<!-- ml-1m -->" in text
    assert ml_1m.rendered(text) == text


def test_every_outcome_names_what_made_it() -> None:
    for outcome in ml_1m.outcomes():
        assert outcome["command"] == ml_1m.command(outcome["name"])
        assert outcome["commit"] != "unknown"
        assert outcome["best_epoch"] <= outcome["epochs"] == len(outcome["history"])
        best = max(row["ndcg@10"] for row in outcome["history"])
        assert outcome["history"][outcome["best_epoch"] - 1]["ndcg@10"] == best


def test_the_benchmark_writes_ratios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "EVENTS", 16)
    monkeypatch.setattr(bench, "ITEMS", 20)
    out = tmp_path / "bench.json"
    asked = ["run.py", "--lengths", "8", "--repeats", "1", "--threads", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", asked)
    bench.main()
    rows = json.loads(out.read_text("utf-8"))["rows"]
    assert {row["what"] for row in rows} == {"attention", "training step"}
    assert all(row["times_softmax"] == 1 for row in rows if row["mechanism"] == "softmax")
