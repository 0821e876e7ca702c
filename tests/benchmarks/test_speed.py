"""README.md and docs/performance.md say what the committed results say, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    curves,
    gpu_compile,
    gpu_roofline,
    kernels,
    losses,
    speed,
    step,
    windows,
)
from benchmarks.peers import page
from benchmarks.results import OUT_FOLDER, PAGE

SURROUNDINGS = {"commit": "abc", "date": "2026-01-02", "machine": "x86_64, AVX2", "threads": 2}
# result -> the places that it fills on docs/performance.md, and what fills them
PLACES: dict[str, tuple[tuple[str, ...], Any]] = {
    "peers-ml-1m": (("peers-ml-1m",), page.rendered),
    "kernels": (("kernels",), kernels.rendered),
    "step": (("parts", "step"), step.rendered),
    "losses": (("losses",), losses.rendered),
    "curves": (("curves",), curves.rendered),
    "windows": (("windows",), windows.rendered),
    "prepare": (("prepare",), page.rendered),
    "peers-gowalla": (("peers-gowalla",), page.rendered),
    "gpu-compile": (("gpu-compile",), gpu_compile.rendered),
    "gpu-roofline": (("gpu-roofline",), gpu_roofline.rendered),
}


def place(text: str, name: str) -> str:
    (found,) = (part.split(f"<!-- /{name} -->")[0] for part in text.split(f"<!-- {name} -->\n")[1:])
    return found


@pytest.mark.parametrize("result", list(PLACES))
def test_no_figure_on_the_page_was_typed_in(result: str) -> None:
    text, (names, rendered) = PAGE.read_text("utf-8"), PLACES[result]
    if (OUT_FOLDER / f"{result}.json").is_file():
        assert rendered(text) == text
        assert "command" in json.loads((OUT_FOLDER / f"{result}.json").read_text("utf-8"))
    else:
        assert all(place(text, name).startswith("_Not measured yet") for name in names)


def test_what_is_expected_of_gpus_is_what_the_formula_gives() -> None:
    """Nothing is measured there, so the committed figures follow from the code alone."""
    committed = json.loads((OUT_FOLDER / "gpu-roofline.json").read_text("utf-8"))
    assert committed["rows"] == gpu_roofline.rows()


def test_no_figure_of_the_readme_was_typed_in() -> None:
    text = speed.README.read_text("utf-8")
    assert speed.rendered(text) == text


def test_nothing_measured_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "OUT_FOLDER", tmp_path)
    assert speed.figures() == (
        "Not measured yet: `make bench-peers`, `python -m benchmarks.kernels`.\n"
    )


def test_the_readme_tells_each_peer_as_a_multiple_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "OUT_FOLDER", tmp_path)
    found = {"recbole": {"seconds_a_million": 8_000.0}, "rectools": {"seconds_a_million": 300.0}}
    rows = page.with_ratios(found | {page.OURS: {"seconds_a_million": 25.0}}, page.OURS)
    outcome = {"command": "python -m x ", **SURROUNDINGS, "rows": rows}
    (tmp_path / "peers-ml-1m.json").write_text(json.dumps(outcome))
    assert speed.figures().splitlines() == [
        "Seconds to train SASRec on ML-1M per million training targets: linrec (`linrec-decay`) "
        "25; RecTools 300 (12 x), RecBole 8,000 (320 x). "
        f"{speed.ONE_TARGET_PER_ROW} 2 threads of x86_64, AVX2, 2026-01-02, commit abc: "
        "`python -m x`.",
        "",
        "Not measured yet: `python -m benchmarks.kernels`.",
    ]


def test_the_readme_tells_attention_at_three_lengths() -> None:
    rows = [
        {"what": what, "width": width, "length": length, "times_softmax": length / 100}
        for what in ("forward", "both")
        for width in (16, 32)
        for length in (100, 200, 1_000, 4_000)
    ]
    message = speed.attention({"command": "c", **SURROUNDINGS, "threads": 1, "rows": rows})
    assert ": 2.0 x at N = 200, 10.0 x at N = 1,000, 40.0 x at N = 4,000; 1 thread of" in message


def test_sampled_protocols_stand_beside_full_ranking() -> None:
    shape = {"length": 100, "width": 64, "heads": 8, "layers": 2, "inner": 256}
    data = {"name": "gowalla", "users": 3, "items": 4, "events": 12}
    row = {"version": "linrec 1", "torch": "2", "eval_seconds": 4.0, "pop100_seconds": 2.5}
    outcome = {"command": "c", **SURROUNDINGS, "dataset": data, "shape": shape}
    message = page.with_protocols(outcome | {"rows": [{"name": page.OURS, **row}]})
    assert "`linrec-decay` by protocol: full ranking 4 s, `pop100` 2.5 s." in message


def test_tables_of_training_name_command_and_machine() -> None:
    outcome = {"command": "python -m x", **SURROUNDINGS, "targets": 4_000}
    row = {"window": 200, "mechanism": "softmax", "seconds": 1.0, "times_first": 1.0, "mib": 2.0}
    message = windows.table(outcome | {"rows": [row]})
    assert "4,000 targets per step; 2 threads of x86_64, AVX2" in message
    assert "](../results/benchmarks/windows.png)" in message
    row = {"items": 9, "loss": "gbce", "ms": 1.0, "times_softmax": 2.0, "mib": 3.0}
    assert "commit abc: `python -m x`." in losses.table(outcome | {"rows": [row]})


def test_both_curves_are_told_epoch_by_epoch() -> None:
    row = {"epoch": 1.0, "loss": 7.0, "ndcg@10": 0.125}
    both = {"with": [row], "without": [row | {"loss": 7.5}]}
    message = curves.table({"command": "c", **SURROUNDINGS, "curves": both})
    assert "| 1 | 7.0000 | 7.5000 | 0.1250 | 0.1250 |" in message
