"""The benchmark of `prepare` draws what it says and keeps one row per size."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from benchmarks import prepare as benchmark
from benchmarks.results import between, with_row


def test_a_tiny_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "prepare.json"
    for _ in range(2):
        arguments = "--events 5000 --users 90 --items 70 --text-ids --out"
        monkeypatch.setattr(sys, "argv", ["prepare", *arguments.split(), str(out)])
        benchmark.main()
    (row,) = json.loads(out.read_text("utf-8"))["rows"]
    assert row["events"] == 5000
    assert row["text_ids"] is True
    assert row["users"] <= 90
    assert row["peak_mb"] > 0
    assert {"commit", "machine"} <= row.keys()


def test_the_log_is_the_same_whenever_it_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["prepare", "--events", "999", "--users", "9", "--items", "7"])
    monkeypatch.setattr(benchmark, "CHUNK", 500)
    requested = benchmark._arguments()
    tables = []
    for name in ("a", "b"):
        benchmark.generate(tmp_path / name, requested)
        tables.append(pl.read_parquet(tmp_path / name))
    assert tables[0].equals(tables[1])
    assert tables[0].shape == (999, 3)
    counts = tables[0]["item"].value_counts(sort=True)["count"].to_list()
    assert counts[0] > 3 * counts[-1]  # Zipf


def test_rows_of_other_sizes_stay(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    for events, seconds in ((2, 1.0), (1, 5.0), (2, 3.0)):
        with_row(out, "command", {"events": events, "seconds": seconds}, ("events",))
    assert json.loads(out.read_text("utf-8"))["rows"] == [
        {"events": 1, "seconds": 5.0},
        {"events": 2, "seconds": 3.0},
    ]


def test_what_stands_between_markers_is_replaced() -> None:
    page = "a\n<!-- x -->\nold\n<!-- /x -->\nb"
    assert between(page, "x", "new\n") == "a\n<!-- x -->\nnew\n<!-- /x -->\nb"
