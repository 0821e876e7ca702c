"""`linrec tune` as a shell meets it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training.cases import flags_of
from tests.tuning.cases import FIXED, space_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytest.importorskip("optuna")


def test_a_study_from_the_command_line(linrec: Any, dataset: Path, tmp_path: Path) -> None:
    out, space = tmp_path / "study", space_file(tmp_path / "space.toml")
    words = ["tune", dataset, "--out", out, "--space", space, *flags_of(FIXED)]
    result = linrec(*words, "--trials", 2)
    assert result.code == 0, result
    for shown in ("trial   0  ", "trial   1  ", "The best trials", "best.toml", "winner-"):
        assert shown in result.out
    assert "NDCG@10" in result.out.split("winner-")[-1]  # on test
    assert tomllib.loads((out / "best.toml").read_text())["training"]["epochs"] == 3
    again = linrec(*words, "--trials", 3, "--no-final")
    assert again.code == 0
    assert "trial   2  " in again.out
    assert "trial   1  " not in again.out


def test_print_space_is_a_space(linrec: Any, dataset: Path, tmp_path: Path) -> None:
    words = ["tune", dataset, "--recipe", "small", "--epochs", 1, "--width", 8, "--heads", 2]
    shown = linrec(*words, "--print-space")
    assert shown.code == 0, shown
    content = tomllib.loads(shown.out)
    assert content["learning_rate"]["log"] is True
    assert "width" not in content
    (tmp_path / "space.toml").write_text(shown.out)
    found = linrec(*words, "--space", tmp_path / "space.toml", "--print-space")
    assert found.out == shown.out


def test_mistakes(refused: Any, dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"

    def wrong(*words: object) -> str:
        sentence: str = refused("tune", dataset, *words)
        assert not out.exists()
        return sentence

    assert "give it as --out" in wrong()
    assert "--trials 0 must be at least 1" in wrong("--out", out, "--trials", 0)
    assert "--hours -1.0 must be positive" in wrong("--out", out, "--hours", -1)
    assert "chooses its settings when it counts" in wrong("--out", out, "--backbone", "popularity")
    assert "--precision auto is decided by a timing" in wrong("--out", out, "--precision", "auto")
    assert "--concurrent is for a Ray cluster; add --engine ray" in wrong(
        "--out", out, "--concurrent", 2
    )
    assert "unknown recipe" in wrong("--out", out, "--recipe", "none")
    space = tmp_path / "space.toml"
    space.write_text("[width]\nchoices = [8, 12]\n[heads]\nchoices = [2, 8]\n")
    assert "the space allows width 12, heads 8, but width 12 must be a multiple of heads 8" in (
        wrong("--out", out, "--space", space, "--inner", 8)
    )
    assert "width is in the space and given as --width 8" in wrong(
        "--out", out, "--space", space, "--width", 8
    )
    space.write_text("[width]\nlow = 9\nhigh = 8\n")
    assert "low 9 is above high 8" in wrong("--out", out, "--space", space)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    assert "was not made by linrec" in refused("tune", dataset, "--out", tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["notes.txt"]
