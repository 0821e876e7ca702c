"""Tables: the best stands out, notes are printed once, the paper's figures stand beside ours."""

from __future__ import annotations

from pathlib import Path

from benchmarks.results import write_json
from experiments.cells import BACKBONES, Cell
from experiments.costs import scaling_table
from experiments.datasets import DATASETS
from experiments.outcomes import Options
from experiments.tables import PAPER, Layout, Row, table


def test_a_table_as_it_is_printed() -> None:
    rows = [
        Row(("a",), [0.2, 1.0], [0.25, None], ["", "▼"], "3 epochs, not converged"),
        Row(("b",), [0.3, None], note="3 epochs, not converged"),
        Row(("c",), [0.1, 2.0], note="diverged in epoch 2"),
        Row(("baseline",), [0.9, 9.0], ranked=False),
    ]
    assert table(Layout(("name",), ("x", "y"), digits=1), rows).splitlines() == [
        "| name | x | y |",
        "|---|---|---|",
        "| a<sup>a</sup> | <u>0.2</u> (0.2) | <u>1.0</u> ▼ |",
        "| b<sup>a</sup> | **0.3** | \N{EN DASH} |",
        "| c<sup>b</sup> | 0.1 | **2.0** |",
        "| baseline | 0.9 | 9.0 |",
        "",
        "<sup>a</sup> 3 epochs, not converged. <sup>b</sup> diverged in epoch 2.",
    ]


def test_the_paper_is_there_for_every_cell_it_has() -> None:
    for name in DATASETS:
        for number in ("table_2", "table_4"):
            assert set(PAPER[number][name]) == set(BACKBONES)
            figures = [
                cell for backbone in PAPER[number][name].values() for cell in backbone.items()
            ]
            assert {attention for attention, _ in figures} == {"softmax", "linrec"}
            assert all(len(values) == 3 for _, values in figures)
        assert PAPER["table_3"][name]["linrec"] == PAPER["table_2"][name]["sasrec"]["linrec"]


def test_costs_stand_beside_the_papers_and_recboles(tmp_path: Path) -> None:
    options = Options(results=tmp_path)
    cell = Cell("ml-1m", "sasrec", "softmax")
    timing = {"peak_mb": 2048, "train_seconds": 100.0, "eval_seconds": 9.5}
    write_json(tmp_path / "scaling" / f"{cell.name}.json", timing)
    write_json(tmp_path / "ml-1m" / "statistics.json", {"events": 1_000_300, "users": 100})
    peer = {"name": "recbole", "train_peak_mb": 3072, "seconds_a_million": 500, "eval_seconds": 7}
    write_json(tmp_path / "benchmarks" / "peers-ml-1m.json", {"rows": [peer, {"name": "rectools"}]})
    lines = scaling_table("ml-1m", options).splitlines()
    assert lines[2] == "| `sasrec` | `softmax` | 2.00 (21.07) | 100.00 (121.00) | 9.50 (41.00) |"
    assert lines[-1] == "| RecBole SASRec | `softmax` | 3.00 | 500.00 | 7.00 |"
