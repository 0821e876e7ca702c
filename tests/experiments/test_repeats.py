"""The table of data with repeats, small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import linrec
from experiments import command
from experiments.cells import repeats
from experiments.datasets import WITH_REPEATS
from experiments.outcomes import Options
from experiments.repeats import repeats_table
from linrec.baselines import BASELINES
from linrec.data.downloads.demo import demo_events
from tests.experiments.small import RECIPE

NAME = "gowalla-checkins"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Options:
    folder = tmp_path_factory.mktemp("repeats")
    events, _ = demo_events(users=40, items=120)
    again = events.with_columns(pl.col("time") + 30_000_000)  # half of the users come back
    again = again.filter(pl.col("user").is_in(events["user"].unique().sort().head(20).implode()))
    linrec.prepare(pl.concat([events, again]), folder / "data")
    recipe = folder / "small.toml"
    recipe.write_text(RECIPE)
    options = Options(
        {NAME: folder / "data"}, folder / "runs", folder / "results", recipe=str(recipe), threads=1
    )
    assert command.reproduce(["repeats"], options)
    return options


def test_every_dataset_has_a_model_with_the_head_and_one_without() -> None:
    for name in WITH_REPEATS:
        on, off = repeats(name)
        assert on.settings() == off.settings() | {"repeat_head": "on"}
        assert on.epochs == off.epochs
    assert len(repeats()) == 2 * len(WITH_REPEATS)


@pytest.mark.slow
def test_the_table_has_models_and_baselines(trained: Options) -> None:
    shown = repeats_table(NAME, replace(trained, runs=Path("nowhere")))
    lines = [line for line in shown.splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0].strip("| ").split("<")[0] for line in lines[1:]] == [
        "model with a repeat head", "the same model without it", *(f"`{b}`" for b in BASELINES),
    ]  # fmt: skip
    assert "NDCG@10, seen before (" in lines[0]
    assert "paired t-test p" in shown
    page = (trained.results.parent / "docs" / "results.md").read_text("utf-8")
    assert shown in page
    assert repeats_table("foursquare-4c", trained) == ""
