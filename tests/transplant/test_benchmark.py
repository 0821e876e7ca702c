"""The benchmark measures what it says, at a size where nothing is to be learned from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import transplant, transplant_models


@pytest.mark.slow
@pytest.mark.peer
def test_a_tiny_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "transplant.json"
    arguments = "--models encoder --lengths 16 --events 64 --repeats 1 --threads 1 --out"
    monkeypatch.setattr(sys, "argv", ["transplant", *arguments.split(), str(out)])
    monkeypatch.setattr(transplant, "MECHANISMS", ("original", "linrec-decay"))
    transplant.main()
    result = json.loads(out.read_text())
    assert {"commit", "date", "machine", "torch", "command", "versions"} <= result.keys()
    assert [row["mechanism"] for row in result["rows"]] == ["original", "linrec-decay"]
    first = result["rows"][0]
    assert (first["train_ratio"], first["eval_ratio"]) == (1.0, 1.0)
    assert all(row[what] > 0 for row in result["rows"] for what in ("train_ms", "eval_ms"))


def test_no_figure_on_the_page_was_typed_in() -> None:
    text = transplant.PAGE.read_text("utf-8")
    assert transplant.rendered(text) == text


def test_batches_hold_as_many_events_at_every_length() -> None:
    for length in (200, 1000, 4000):
        items = transplant_models.batch_of(length, 8_000)
        assert items.shape == (8_000 // length, length)
        assert (items[0] == 0).sum() == length // 4
