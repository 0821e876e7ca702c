"""`linrec reproduce`: what it parses and refuses; what it does is tested in tests/experiments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command, Refused


def test_a_dry_run_tells_what_is_missing(linrec: Command, tmp_path: Path) -> None:
    places = ("--runs", tmp_path / "runs", "--results", tmp_path / "results")
    told = linrec("reproduce", "overall", "--cells", "ml-1m-sasrec-*", *places, "--dry-run")
    assert told.code == 0
    assert told.out.splitlines()[-1] == "0 of 3 cells finished"
    assert not (tmp_path / "runs").exists()


def test_mistakes(refused: Refused, tmp_path: Path) -> None:
    assert "there is no table 'overal'" in refused("reproduce", "overal")
    assert "is not NAME=PATH with a NAME of ml-1m, gowalla" in refused(
        "reproduce", "all", "--data", "ml-2m=x"
    )
    assert "there is nothing at" in refused(
        "reproduce", "all", "--data", f"ml-1m={tmp_path / 'none'}"
    )
    assert "no cell is named 'x*'" in refused("reproduce", "all", "--cells", "x*")


def test_outside_a_clone_it_says_so(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed = tmp_path / "lib" / "site-packages" / "linrec" / "cli" / "reproduce.py"
    monkeypatch.setattr(sys.modules["linrec.cli.reproduce"], "__file__", str(installed))
    assert "runs from a clone" in refused("reproduce", "all")
