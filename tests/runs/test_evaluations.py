"""Evaluations in a run folder: figures and the rank of every user."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from linrec.evaluation import Evaluation, compare
from linrec.recommender import Recommender
from linrec.runs.evaluations import evaluation_name
from linrec.runs.run import Run
from linrec.scoring import MISS
from linrec.types import InputError
from tests.training.fixtures import dataset, run, store, trained

__all__ = ["dataset", "run", "store", "trained"]


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(run, tmp_path / "copy"))


def test_ranks_go_to_disk_and_back(copy: Run, trained: Recommender) -> None:
    evaluation, users = trained.evaluate_users(protocol="pop100")
    name = evaluation_name("test", "pop100")
    assert not copy.has_evaluation(name)
    copy.save_evaluation(evaluation, users)
    assert copy.has_evaluation(name)
    loaded, frame = copy.load_evaluation(name)
    assert loaded == evaluation
    assert frame.equals(users)
    assert frame.schema == users.schema
    path = copy.folder / "evaluation" / "test-pop100.parquet"
    assert pl.read_parquet(path).equals(users), "any reader can open it"
    text = path.with_suffix(".json").read_text()
    assert Evaluation.from_json(text) == evaluation
    assert compare((evaluation, users), copy.load_evaluation(name))["mrr"].t_p == 1.0


def test_hidden_targets_of_early_versions_are_misses(copy: Run) -> None:
    evaluation, users = copy.load_evaluation("test-full")
    early = users.with_columns(rank=pl.col("rank").clip(upper_bound=evaluation.n_items))
    early[0, "rank"] = evaluation.n_items
    copy.save_evaluation(evaluation, early)
    again = copy.load_evaluation("test-full")[1]
    assert again["rank"][0] == MISS
    assert again[1:].equals(users[1:])


def test_files_that_hold_no_ranks_are_named(copy: Run) -> None:
    evaluation, users = copy.load_evaluation("test-full")
    with pytest.raises(InputError, match=r"there are no ranks at .*test-missing"):
        copy.load_evaluation("test-missing")
    path = copy.folder / "evaluation" / "test-full.parquet"
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(InputError, match="cannot read"):
        copy.load_evaluation("test-full")
    users.write_parquet(path)
    with pytest.raises(InputError, match="holds no ranks"):
        copy.load_evaluation("test-full")
    copy.save_evaluation(evaluation, users)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="cannot read"):
        copy.load_evaluation("test-full")


def test_each_protocol_has_its_own_name() -> None:
    assert evaluation_name("valid", "full") == "valid-full"
    assert evaluation_name("test", "full", hide_seen=False) == "test-full-seen"
    assert evaluation_name("test", "pop100", 3, hide_seen=False) == "test-pop100-seed3"


def test_new_weights_remove_the_figures_of_the_old_ones(copy: Run) -> None:
    assert (copy.folder / "report.html").is_file()
    copy.save_weights(copy.load_model())
    assert not copy.has_evaluation("test-full")
    assert not (copy.folder / "report.html").exists()
    assert json.loads((copy.folder / "config.json").read_text())["format"] == 2
