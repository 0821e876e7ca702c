"""The table over seeds: means, spreads and a test, from cells with the whole budget alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from benchmarks.results import write_json
from experiments import comparisons
from experiments.cells import Cell, over_seeds
from experiments.outcomes import Options, model_of
from experiments.seeds import seeds_table
from experiments.training import METRICS, PROTOCOLS

FIGURES = {"softmax": (0.2, 0.202, 0.201), "linrec": (0.18, 0.184, 0.182)}


def outcome(cell: Cell, figure: float, epochs: int = 30) -> dict[str, Any]:
    metrics = {metric: {"mean": figure} for metric in METRICS}
    return {
        "name": cell.name, "seed": cell.seed, "epochs": epochs, "best_epoch": epochs,
        "history": [{"ndcg@10": figure}] * epochs, "commit": "abc", "fingerprint": "f",
        "config": {"training": {}, "model": {"backbone": cell.backbone,
                                             "attention": cell.attention}},
        "evaluations": {f"test-{protocol}": {"metrics": metrics} for protocol in PROTOCOLS},
    }  # fmt: skip


@pytest.fixture
def options(tmp_path: Path) -> Options:
    options = Options(results=tmp_path)
    for name, figures in FIGURES.items():
        for cell, figure in zip(over_seeds(name), figures, strict=True):
            write_json(options.path(cell), outcome(cell, figure))
    return options


def lines(options: Options) -> dict[str, list[str]]:
    rows = [line.strip("| ").split(" | ") for line in seeds_table(options).splitlines()]
    return {row[0].strip("`"): row for row in rows}


def test_mean_spread_and_test(options: Options) -> None:
    softmax, linrec = lines(options)["softmax"], lines(options)["linrec"]
    assert softmax[1:4] == ["3", "–", "–"]  # noqa: RUF001
    assert softmax[-1] == "**0.2010** ± 0.0010"
    p = stats.ttest_ind(FIGURES["linrec"], FIGURES["softmax"], equal_var=False).pvalue
    assert linrec[1:4] == ["3", "< 0.001" if p < 0.001 else f"{p:.3f}", "–"]  # noqa: RUF001
    assert linrec[-1] == "<u>0.1820</u> ± 0.0020 ▼"


def test_a_cell_with_a_part_of_the_budget_does_not_count(options: Options) -> None:
    first, *_ = over_seeds("softmax")
    write_json(options.path(first), outcome(first, 0.9, epochs=24))
    assert lines(options)["softmax"][1] == "2"
    assert lines(options)["softmax"][-1].startswith("**0.2015**")
    assert options.note(first) == "24 of 30 epochs, +0.0 % in the last fifth"


def test_the_test_over_users_stands_beside_it(options: Options) -> None:
    softmax, linrec = over_seeds("softmax")[0], over_seeds("linrec")[0]
    of = [model_of(outcome(cell, 0)) for cell in (softmax, linrec)]
    test = {"t_p": 0.0123, "difference": {"mean": -0.1}}
    tests = {f"test-{protocol}": dict.fromkeys(METRICS, test) for protocol in PROTOCOLS}
    write_json(comparisons.path(linrec, softmax, options), {"of": of, "tests": tests})
    assert lines(options)["linrec"][3] == "0.012"


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    options, cell = Options(results=tmp_path), over_seeds("efficient")[0]
    write_json(options.path(cell), outcome(cell, 0.19))
    assert lines(options)["efficient"][1:] == ["1", "–", "–", *["0.1900"] * 6]  # noqa: RUF001
