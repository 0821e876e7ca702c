"""Every table and figure from nothing, small; and the pages of this repository from its results."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.environment import ROOT
from benchmarks.results import to_json, write_json
from experiments import attention, command, comparisons, timing
from experiments.cells import Cell, select
from experiments.outcomes import Options, read
from experiments.pages import markdown
from experiments.readme import with_tables
from linrec import InputError
from tests.experiments.small import small_options

COMMITTED = Options(runs=Path("nowhere"))


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """All there is on one dataset, in this process; the other one is not given."""
    options = small_options(tmp_path_factory.mktemp("all"))
    del options.data["gowalla"]
    options = replace(options, steps=1, rounds=1, lengths=(8, 12))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "_in_own_process", timing.measure)
        patch.setattr(timing, "BATCH", 64)
        patch.setattr(timing, "ITEMS", 40)
        assert command.reproduce(["all"], options)
    return options


@pytest.mark.slow
def test_empty_results_are_filled(reproduced: Options) -> None:
    for cell in select(command.TABLES, "ml-1m-*"):
        known = reproduced.outcome(cell)
        assert known is not None, cell.name
        assert known["commit"]
        assert known["command"].startswith(f"linrec train runs/data-{cell.dataset} --out runs/")
    assert len(list((reproduced.results / "scaling").glob("*.json"))) == 15
    assert len(list((reproduced.results / "lengths").glob("*.json"))) == 6
    assert len(list((reproduced.results / "reach").glob("*.json"))) == 6
    assert len(list((reproduced.results / "attention").glob("*.json"))) == 3


@pytest.mark.slow
def test_the_pages_show_it_all(reproduced: Options) -> None:
    page = (reproduced.results.parent / "docs" / "results.md").read_text("utf-8")
    images = reproduced.results.parent / "docs" / "images"
    names = {path.stem for path in images.glob("*.png")}
    assert names == {
        "quality", "cost", "ablation", "heatmap", "conditions", "reach", "default", "long",
    }  # fmt: skip
    assert set(re.findall(r"\(images/(\w+)\.png\)", page)) == names
    paper = page.split("## Beyond the paper: the default model")[0]
    ours = paper.split("**ML-1M**")[1:]
    assert not any("| \N{EN DASH}" in part.split("**Gowalla**")[0] for part in ours)
    assert (
        "`python -m experiments overall --data ml-1m=PATH --data gowalla=PATH` completes them"
        in page
    )
    assert "experiments lengths" not in page  # nothing is missing there
    report = (reproduced.results / "report.html").read_text("utf-8")
    assert report.count('src="data:image/png;base64,') == len(names)
    assert "images/" not in report
    assert '.md"' not in report  # a page that the one file has not got
    for section in re.findall(r'href="#([^"]+)"', report):
        assert f'id="{section}"' in report


@pytest.mark.slow
def test_what_is_there_is_only_rendered(reproduced: Options) -> None:
    before = {path: path.stat().st_mtime_ns for path in reproduced.results.rglob("*.json")}
    assert command.reproduce(["all"], reproduced)
    after = {path: path.stat().st_mtime_ns for path in reproduced.results.rglob("*.json")}
    assert before == after


@pytest.mark.slow
def test_attention_is_measured_per_head(reproduced: Options) -> None:
    heads = {}
    for name in ("softmax", "linrec"):
        known = read(reproduced.results / "attention" / f"ml-1m-sasrec-{name}.json")
        assert known is not None
        assert [(one["layer"], one["head"]) for one in known["heads"]] == [
            (1, 1), (1, 2), (2, 1), (2, 2),
        ]  # fmt: skip
        heads[name] = known["heads"]
    for one in heads["softmax"]:
        assert one["row_sum"] == one["row_sum_max"] == 1
        assert one["negative_share"] == 0
        assert 1 <= one["effective"] <= 12
    assert all(one["row_sum_max"] <= 1 for one in heads["linrec"])
    assert any(one["negative_share"] > 0 for one in heads["linrec"])


@pytest.mark.slow
def test_more_training_makes_what_was_made_of_a_model_stale(
    reproduced: Options, tmp_path: Path
) -> None:
    options = replace(reproduced, results=tmp_path / "results")
    shutil.copytree(reproduced.results, options.results)
    without, cell = Cell("ml-1m", "sasrec", "softmax"), Cell("ml-1m", "sasrec", "linrec")
    assert comparisons.comparison(cell, without, options) is not None
    assert attention.is_current(cell, options)
    known = options.outcome(cell)
    assert known is not None
    write_json(options.path(cell), known | {"epochs": 7})
    assert comparisons.comparison(cell, without, options) is None
    assert not attention.is_current(cell, options)


@pytest.mark.slow
def test_a_measurement_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    recipe = small_options(tmp_path).recipe
    settings = Cell("ml-1m", "sasrec", "linrec").settings(recipe)
    job = timing.Job("one", settings | {"batch_tokens": 4000}, length=2000, steps=1, threads=1)
    found = timing._in_own_process(job)
    assert found["targets"] > 0
    assert found["peak_mb"] >= found["start_mb"] > 0


def test_no_figure_on_a_page_was_typed_in() -> None:
    page = (ROOT / "docs" / "results.md").read_text("utf-8")
    shown = re.findall(r"\(images/(\w+)\.png\)", page)
    assert markdown(COMMITTED, dict.fromkeys(shown)) == page
    assert all((ROOT / "docs" / "images" / f"{name}.png").exists() for name in shown)
    readme = (ROOT / "README.md").read_text("utf-8")
    assert with_tables(readme, COMMITTED) == readme


def test_every_result_is_written_compactly() -> None:
    paths = list((ROOT / "results").rglob("*.json"))
    assert paths
    for path in paths:
        text = path.read_text("utf-8")
        assert to_json(json.loads(text)) + "\n" == text, path


def test_every_outcome_names_what_made_it() -> None:
    known = [(cell, one) for cell in select(command.TABLES) if (one := COMMITTED.outcome(cell))]
    assert known
    for cell, outcome in known:
        assert outcome["name"] == cell.name
        assert outcome["command"].startswith("linrec train ")
        assert f" --out runs/{cell.name} " in outcome["command"]
        assert not re.search(r" (True|False)\b", outcome["command"])
        assert outcome["commit"] != "unknown"
        assert outcome["best_epoch"] <= outcome["epochs"] == len(outcome["history"])
        if outcome["history"]:
            best = max(row["ndcg@10"] for row in outcome["history"])
            assert outcome["history"][outcome["best_epoch"] - 1]["ndcg@10"] == best
        else:  # its minutes were over within the first epoch
            assert outcome["stopped"] == "time"
            assert 0 < outcome["epoch_share"] < 1


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(InputError, match="there is no table 'table5'; choose from overall"):
        command.reproduce(["table5"], COMMITTED)
