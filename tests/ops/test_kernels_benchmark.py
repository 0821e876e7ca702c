"""The kernels' benchmark measures what it says, and the page says what it measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import kernels
from linrec import ops


@pytest.mark.skipif(ops.kernels().startswith("off"), reason="there are no kernels to measure")
def test_a_tiny_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "kernels.json"
    arguments = "--lengths 8 16 --widths 8 --events 32 --repeats 1 --out"
    monkeypatch.setattr(sys, "argv", ["kernels", *arguments.split(), str(out)])
    kernels.main()
    actual = json.loads(out.read_text())
    assert {"commit", "machine", "kernels", "copy_gb_a_second", "slopes"} <= actual.keys()
    assert [row["what"] for row in actual["rows"]] == ["forward", "both"] * 2
    assert kernels.table(actual).count("\n| 8 |") == 2


@pytest.mark.skipif(not kernels.OUT.exists(), reason="nothing has been measured yet")
def test_no_figure_on_the_page_was_typed_in() -> None:
    text = kernels.PAGE.read_text("utf-8")
    assert kernels.rendered(text) == text
