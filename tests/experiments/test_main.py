"""`python -m experiments`: what it parses and refuses; the other files test what it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.environment import ROOT
from benchmarks.results import write_json
from experiments.__main__ import main
from experiments.cells import Cell
from experiments.outcomes import Options
from experiments.training import flag
from tests.experiments.test_seeds import outcome


def test_a_dry_run_lists_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folders = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    assert main(["overall", "--cells", "ml-1m-sasrec-*", *folders, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 of 3 cells finished"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["overal"], "there is no table 'overal'"),
        (["all", "--data", "ml-2m=x"], "is not NAME=PATH with a NAME of ml-1m, gowalla"),
        (["all", "--data", "ml-1m=nowhere"], "there is nothing at nowhere"),
        (["all", "--cells", "x*"], "no cell is named 'x*'"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("experiments: ")
    assert error.count("\n") == 1


def test_results_of_another_clone_are_collected_and_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    there, here = Options(results=tmp_path / "there"), Options(results=tmp_path / "here")
    cell = Cell("ml-1m", "sasrec", "linrec", seed=2)
    write_json(there.path(cell), outcome(cell, 0.1234))
    folders = ["--results", str(here.results), "--runs", str(tmp_path / "runs")]
    assert main(["seeds", "--collect", str(there.results), *folders]) == 0
    assert "1 files copied" in capsys.readouterr().out
    assert here.outcome(cell) == there.outcome(cell)
    assert "| `linrec` | 1 |" in (tmp_path / "docs" / "results.md").read_text("utf-8")


@pytest.mark.slow
def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "experiments", "--help"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "several processes may share" in done.stdout


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("seen_aware", False, "--no-seen-aware"),
        ("head_norm", True, "--head-norm"),
        ("max_length", 0, "--max-length 0"),
        ("seen", "keep", "--seen keep"),
    ],
)
def test_a_setting_is_shown_as_the_command_takes_it(name: str, value: object, shown: str) -> None:
    assert flag(name, value) == shown
