"""Baselines on the command line: trained, evaluated, compared and served as models are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command, Refused


@pytest.fixture
def habits(linrec: Command, dataset: Path, tmp_path: Path) -> Path:
    words = ("--backbone", "personal-decay", "--seen", "hide")
    result = linrec("train", dataset, "--out", tmp_path / "habits", *words)
    assert result.code == 0, result.err
    assert "Counted personal-decay, decay " in result.out
    assert "what is left is popularity" in result.out.replace("\n", " ")
    return tmp_path / "habits"


def test_a_baseline_is_one_command_away(
    linrec: Command, habits: Path, run: Path, tmp_path: Path
) -> None:
    result = linrec("evaluate", habits, "--seen", "keep", "--baselines", "last-item,ease", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert list(found["baselines"]) == ["last-item", "ease"]
    assert found["baseline_settings"]["ease"].keys() == {"l2"}
    assert found["own"] == "personal-decay"
    assert found["against"]["baseline"] in found["baselines"]
    shown = linrec("recommend", habits, "--history", "i01,i02,i02", "--seen", "keep", "-k", "2")
    assert shown.out.index("i02") < shown.out.index("i01")
    out = linrec("recommend", habits, "--history", "i01,i02", "--out", tmp_path / "recs.csv")
    assert "keep seen items" in out.err
    compared = linrec("compare", habits, run, "--seen", "hide", "--json")
    assert compared.code == 0, compared.err
    assert "ndcg@10" in json.loads(compared.out)


def test_the_verdict_is_in_the_output_of_evaluate(linrec: Command, habits: Path) -> None:
    text = " ".join(linrec("evaluate", habits).out.split())
    assert "the model does not beat the best baseline: last-item (NDCG@10" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--width", "8"], "the backbone personal-decay has no use for width; leave --width out"),
        (["--epochs", "3"], "has no use for epochs; leave --epochs out"),
        (["--decay", "2"], "--decay 2.0 must be above 0 and at most 1"),
        (["--l2", "2"], "has no use for l2; leave --l2 out, or choose --backbone ease"),
        (["--recipe", "small"], "no use for the recipe small; leave --recipe out"),
    ],
)
def test_flags_without_a_meaning_are_refused(
    refused: Refused, dataset: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    out = tmp_path / "out"
    message = refused("train", dataset, "--out", out, "--backbone", "personal-decay", *words)
    assert sentence in message
    assert not out.exists()


def test_unknown_baselines_resuming_and_exports_are_refused(
    refused: Refused, dataset: Path, habits: Path
) -> None:
    message = refused("evaluate", habits, "--baselines", "personl")
    assert "unknown baseline 'personl'; give --baselines as quick, all, none or names" in message
    train = ("train", dataset, "--out", habits, "--backbone", "personal-decay")
    assert "nothing to resume; leave --resume" in refused(*train, "--resume")
    pytest.importorskip("onnxruntime")
    message = refused("export", habits, "--out", habits.with_name("onnx"))
    assert "is the baseline personal-decay, which only counts" in message


def test_the_help_names_every_baseline(linrec: Command) -> None:
    from linrec.baselines import BASELINES

    text = " ".join(linrec("train", "--help").out.replace("│", " ").split())
    first = text[text.index("--backbone ", text.index("Model")) :].split("--attention")[0]
    assert [name for name in BASELINES if name not in first] == []
