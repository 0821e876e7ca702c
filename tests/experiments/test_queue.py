"""Cells: finished ones are not repeated, cut ones go on, locked ones are left alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from rich.console import Console

from experiments import training
from experiments.cells import Cell, chosen
from experiments.outcomes import Options, footnote
from experiments.queue import listed, work
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
    found = options.outcome(cell)
    assert found is not None
    return found


def test_a_finished_cell_is_not_repeated_and_more_epochs_continue_it(fresh: Options) -> None:
    assert work([CELL], fresh, QUIET)
    first = outcome(fresh)
    assert first["epochs"] == 1
    assert footnote(first) == "1 epoch, not converged"
    assert {"test-full", "test-pop100"} == set(first["evaluations"])
    assert sum(group["users"] for group in first["by_length"]) == 60
    stamp = fresh.place(CELL).stat().st_mtime_ns
    assert work([CELL], fresh, QUIET)
    assert fresh.place(CELL).stat().st_mtime_ns == stamp

    longer = with_epochs(fresh, 3)
    assert not longer.finished(CELL)
    assert work([CELL], longer, QUIET)
    again = outcome(longer)
    assert again["epochs"] == 3
    assert again["history"][0] == first["history"][0]
    assert fresh.finished(CELL)  # what it was asked for last is what it is held to


def test_cells_of_gowalla_say_that_places_were_drawn(fresh: Options) -> None:
    cell = replace(CELL, dataset="gowalla")
    assert work([cell], fresh, QUIET)
    assert footnote(outcome(fresh, cell)) == "1 epoch, not converged, sampled-softmax"


def test_a_budget_cuts_a_cell_which_then_goes_on(fresh: Options) -> None:
    cut = replace(fresh, budget=0.0)
    assert work([CELL], cut, QUIET)
    first = outcome(cut)
    assert first["stopped"] == "budget"
    assert first["epochs"] == 0
    assert 0 < first["epoch_share"] <= 1
    assert "not converged" in footnote(first)
    assert not fresh.finished(CELL)
    assert work([CELL], fresh, QUIET)
    assert outcome(fresh)["epochs"] == 1
    assert "stopped" not in outcome(fresh)


def test_a_timed_cell_ends_with_its_time(fresh: Options) -> None:
    timed = replace(CELL, variant="timed", minutes=0.0)
    assert work([timed], fresh, QUIET)
    assert outcome(fresh, timed)["stopped"] == "time"
    assert fresh.finished(timed)


def test_a_locked_cell_is_left_and_the_lock_of_the_dead_is_not(fresh: Options) -> None:
    fresh.runs.mkdir(parents=True)
    lock = fresh.runs / f".{CELL.name}.lock"
    with FileLock(lock):
        assert work([CELL], fresh, QUIET)
    assert fresh.outcome(CELL) is None
    lock.write_text("")  # as a killed process leaves it
    assert work([CELL], fresh, QUIET)
    assert fresh.finished(CELL)


def test_divergence_is_an_outcome(fresh: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*_: object, **__: object) -> None:
        raise DivergedError(1, float("nan"))

    monkeypatch.setattr(training.linrec.Recommender, "fit", fit)
    assert work([CELL], fresh, QUIET)
    assert footnote(outcome(fresh)) == "diverged in epoch 1"
    assert fresh.finished(CELL)


def test_figures_by_length_are_added_to_results_without_them(fresh: Options) -> None:
    cell = Cell("ml-1m", "core", "linrec-decay")
    assert work([cell], fresh, QUIET)
    assert (fresh.results / "ml-1m" / "ml-1m-core-linrec-decay.json").exists()
    old = outcome(fresh, cell)
    del old["by_length"]
    fresh.place(cell).write_text(json.dumps(old))
    assert fresh.finished(cell)
    assert work([cell], fresh, QUIET)
    assert "by_length" in outcome(fresh, cell)


def test_cells_are_chosen_by_name_and_counted_once() -> None:
    names = [cell.name for cell in chosen(["overall", "efficient", "ablation", "beyond"])]
    assert len(names) == len(set(names))
    some = chosen(["overall"], "ml-1m-sasrec-*")
    assert [cell.attention for cell in some] == ["softmax", "linrec", "linrec-decay"]
    with pytest.raises(InputError, match="no cell is named 'ml-2m"):
        chosen(["overall"], "ml-2m*")


def test_what_is_missing_is_listed_and_needs_no_data(fresh: Options) -> None:
    lines = listed(chosen(["efficient"], "ml-1m*"), replace(fresh, data={}))
    assert lines[0].split()[1:] == ["not", "begun"]
    assert lines[-1] == "0 of 5 cells finished"
    assert work([CELL], replace(fresh, data={}), QUIET)
    assert fresh.outcome(CELL) is None
