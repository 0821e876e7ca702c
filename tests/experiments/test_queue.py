"""Cells: finished ones are not repeated, interrupted ones resume, locked ones are skipped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from rich.console import Console

from experiments import training
from experiments.cells import SEEDED, SEEDS, Cell, over_seeds, select
from experiments.outcomes import Options, footnote, last_fifth
from experiments.progress import Deadline
from experiments.queue import summary, train_all
from linrec import InputError
from linrec.training.loop import DivergedError
from tests.experiments.small import small_options, with_epochs

CELL = Cell("ml-1m", "sasrec", "linrec")
QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    return small_options(tmp_path_factory.mktemp("reproduce"))


@pytest.fixture
def fresh(options: Options, tmp_path: Path) -> Options:
    return replace(options, runs=tmp_path / "runs", results=tmp_path / "results")


def outcome(options: Options, cell: Cell = CELL) -> dict:
    known = options.outcome(cell)
    assert known is not None
    return known


def test_a_finished_cell_is_not_repeated_and_more_epochs_continue_it(fresh: Options) -> None:
    assert train_all([CELL], fresh, QUIET)
    first = outcome(fresh)
    assert first["epochs"] == 1
    assert fresh.note(CELL) == "1 epoch"
    assert with_epochs(fresh, 3).note(CELL) == "1 of 3 epochs"
    assert {"test-full", "test-pop100"} == set(first["evaluations"])
    assert sum(group["users"] for group in first["by_length"]) == 60
    stamp = fresh.path(CELL).stat().st_mtime_ns
    assert train_all([CELL], fresh, QUIET)
    assert fresh.path(CELL).stat().st_mtime_ns == stamp

    longer = with_epochs(fresh, 3)
    assert not longer.finished(CELL)
    assert train_all([CELL], longer, QUIET)
    again = outcome(longer)
    assert again["epochs"] == 3
    assert again["history"][0] == first["history"][0]
    assert again["config"]["training"]["patience"] == 3  # no early stopping: equal budgets
    assert fresh.finished(CELL)


def test_cells_of_gowalla_name_their_loss(fresh: Options) -> None:
    cell = replace(CELL, dataset="gowalla")
    assert train_all([cell], fresh, QUIET)
    assert footnote(outcome(fresh, cell)) == "1 epoch, sampled-softmax"


class After(Deadline):
    """A deadline that has passed when it is looked at a second time."""

    looks = 0

    @property
    def passed(self) -> bool:
        self.looks += 1
        return self.looks > 1


def test_hours_interrupt_a_cell_which_then_resumes(fresh: Options) -> None:
    other = replace(CELL, attention="softmax")
    assert train_all([CELL, other], fresh, QUIET, After(None))
    first = outcome(fresh)
    assert first["stopped"] == "hours"
    assert first["epochs"] == 0
    assert 0 < first["epoch_share"] <= 1
    assert "of 2 epochs" in with_epochs(fresh, 2).note(CELL)
    assert fresh.outcome(other) is None
    assert not fresh.finished(CELL)
    assert train_all([CELL], fresh, QUIET)
    assert outcome(fresh)["epochs"] == 1
    assert "stopped" not in outcome(fresh)


def test_an_interrupted_cell_does_not_replace_a_longer_one(fresh: Options) -> None:
    assert train_all([CELL], fresh, QUIET)
    first = outcome(fresh)
    empty = replace(with_epochs(fresh, 2), runs=fresh.runs / "empty")
    assert train_all([CELL], empty, QUIET, After(None))
    assert (empty.folder(CELL)).exists()
    assert outcome(fresh) == first


def test_no_hours_train_nothing(fresh: Options) -> None:
    assert train_all([CELL], replace(fresh, hours=0.0), QUIET)
    assert fresh.outcome(CELL) is None


def test_a_seed_is_part_of_the_cell(fresh: Options) -> None:
    cell = replace(CELL, seed=1)
    assert cell.name == f"{CELL.name}-seed-1"
    assert train_all([CELL, cell], fresh, QUIET)
    first, second = outcome(fresh), outcome(fresh, cell)
    assert (first["seed"], second["seed"]) == (0, 1)
    assert first["history"] != second["history"]


def test_every_attention_of_a_seed_comes_before_the_next_seed() -> None:
    cells = over_seeds()
    assert [cell.seed for cell in cells] == [seed for seed in SEEDS for _ in SEEDED]
    assert {cell.epochs for cell in cells} == {30}


def test_the_last_fifth_of_a_curve() -> None:
    curve = [0.1, 0.2, 0.18, 0.19, 0.19, 0.18, 0.2, 0.19, 0.21, 0.2]
    history = [{"ndcg@10": value} for value in curve]
    assert last_fifth({"history": history}) == pytest.approx(0.05)
    assert last_fifth({"history": history[:4]}) is None
    known = {"history": history, "epochs": 10, "config": {"training": {}}}
    assert footnote(known, 30) == "10 of 30 epochs, +5.0 % in the last fifth"
    assert footnote(known, 10) == "10 epochs, +5.0 % in the last fifth"


def test_a_timed_cell_ends_with_its_time(fresh: Options) -> None:
    timed = replace(CELL, variant="timed", minutes=0.0)
    assert train_all([timed], fresh, QUIET)
    assert outcome(fresh, timed)["stopped"] == "time"
    assert fresh.finished(timed)


def test_a_locked_cell_is_skipped_and_the_lock_of_a_dead_process_is_not(fresh: Options) -> None:
    fresh.runs.mkdir(parents=True)
    lock = fresh.runs / f".{CELL.name}.lock"
    with FileLock(lock):
        assert train_all([CELL], fresh, QUIET)
    assert fresh.outcome(CELL) is None
    lock.write_text("")  # as a killed process leaves it
    assert train_all([CELL], fresh, QUIET)
    assert fresh.finished(CELL)


def test_divergence_is_an_outcome(fresh: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*_: object, **__: object) -> None:
        raise DivergedError(1, float("nan"))

    monkeypatch.setattr(training.linrec.Recommender, "fit", fit)
    assert train_all([CELL], fresh, QUIET)
    assert footnote(outcome(fresh)) == "diverged in epoch 1"
    assert fresh.finished(CELL)


def test_figures_by_length_are_added_to_results_without_them(fresh: Options) -> None:
    cell = Cell("ml-1m", "core", "linrec-decay")
    assert train_all([cell], fresh, QUIET)
    assert (fresh.results / "ml-1m" / "ml-1m-core-linrec-decay.json").exists()
    old = outcome(fresh, cell)
    del old["by_length"]
    fresh.path(cell).write_text(json.dumps(old))
    assert fresh.finished(cell)
    assert train_all([cell], fresh, QUIET)
    assert outcome(fresh, cell)["by_length"]


def test_cells_are_chosen_by_name_and_counted_once() -> None:
    names = [cell.name for cell in select(["overall", "efficient", "ablation", "beyond"])]
    assert len(names) == len(set(names))
    some = select(["overall"], "ml-1m-sasrec-*")
    assert [cell.attention for cell in some] == ["softmax", "linrec", "linrec-decay"]
    with pytest.raises(InputError, match="no cell is named 'ml-2m"):
        select(["overall"], "ml-2m*")


def test_what_is_missing_is_listed_and_needs_no_data(fresh: Options) -> None:
    lines = summary(select(["efficient"], "ml-1m*"), replace(fresh, data={}))
    assert lines[0].split()[1:] == ["not", "started"]
    assert lines[-1] == "0 of 5 cells finished"
    assert train_all([CELL], replace(fresh, data={}), QUIET)
    assert fresh.outcome(CELL) is None
