"""--seen, and what the commands do without it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Command, Refused
from tests.training.cases import SMALL

FLAGS = [
    word
    for name in ("width", "heads", "layers", "inner", "dropout", "batch_tokens", "learning_rate")
    for word in (f"--{name.replace('_', '-')}", SMALL[name])
]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everybody has three items of twelve, again and again."""
    path = tmp_path_factory.mktemp("habits") / "events.csv"
    rows = [
        f"{user},i{(user + step % 3) % 12:02d},{step}"
        for user in range(30)
        for step in range(8 + user % 3)
    ]
    path.write_text("\n".join(["user,item,time", *rows]))
    return path


@pytest.fixture
def data(linrec: Command, log: Path) -> Path:
    out = log.parent / "data"
    if not out.exists():
        assert linrec("prepare", log, "--out", out).code == 0
    return out


@pytest.fixture
def kept(linrec: Command, data: Path) -> Path:
    """A run that was told nothing."""
    out = data.parent / "kept"
    if not out.exists():
        assert linrec("train", data, "--out", out, "--epochs", 2, *FLAGS).code == 0
    return out


def test_prepare_and_describe_show_repeats(linrec: Command, log: Path, tmp_path: Path) -> None:
    reason = "100.0% of last events are items the user had before, more than 5%"
    shown = linrec("prepare", log, "--out", tmp_path / "data")
    assert reason in " ".join(shown.out.split())
    described = linrec("describe", tmp_path / "data").out
    assert "events of items the user had before" in described
    assert reason in " ".join(described.split())
    content = json.loads(linrec("describe", tmp_path / "data", "--json").out)
    assert content["last_repeat_share"] == 1
    assert content["repeat_share"] == pytest.approx(1 - 90 / content["events"])
    assert content["sparsity"] == pytest.approx(75)


def test_train_says_why_and_the_others_follow(linrec: Command, data: Path, tmp_path: Path) -> None:
    shown = linrec("train", data, "--out", tmp_path / "run", "--epochs", 1, *FLAGS)
    assert "more than 5%: seen items are kept" in " ".join(shown.out.split())
    assert "full ranking, seen items kept" in shown.out
    assert "full ranking, seen items kept" in linrec("evaluate", tmp_path / "run").out
    hidden = linrec("evaluate", tmp_path / "run", "--seen", "hide")
    assert "full ranking, seen items hidden" in hidden.out
    words = ("recommend", tmp_path / "run", "--history", "i03,i04", "-k", 12)
    assert "i03" in linrec(*words).out
    assert "i03" not in linrec(*words, "--seen", "hide").out


def test_compare_takes_what_both_runs_say(
    linrec: Command, refused: Refused, kept: Path, data: Path, tmp_path: Path
) -> None:
    hides = tmp_path / "hides"
    linrec("train", data, "--out", hides, "--epochs", 1, "--seen", "hide", *FLAGS)
    same = shutil.copytree(kept, tmp_path / "same")
    assert json.loads(linrec("compare", kept, same, "--json").out)["ndcg@10"]["t_p"] == 1
    sentence = refused("compare", hides, kept)
    assert f"{hides} was trained to hide seen items and {kept} to keep them" in sentence
    assert "add --seen hide or --seen keep to evaluate both alike" in sentence
    assert not (hides / "evaluation" / "test-full-seen.json").exists()
    for seen in ("hide", "keep"):
        assert linrec("compare", hides, kept, "--seen", seen).code == 0
    assert linrec("compare", hides, kept, "--protocol", "uni100").code == 0  # never hides


@pytest.mark.parametrize("command", ["evaluate", "recommend", "compare"])
def test_a_mistyped_value_is_refused(command: str, refused: Refused, kept: Path) -> None:
    rest = {"evaluate": (), "recommend": ("--all",), "compare": (kept,)}[command]
    sentence = refused(command, kept, *rest, "--seen", "show")
    assert sentence == "linrec: --seen show must be hide or keep\n"


def test_a_loss_without_seen_items_and_lists_with_them_exclude_each_other(
    refused: Refused, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    sentence = refused("train", data, "--out", out, "--seen", "keep", "--seen-aware")
    assert "--seen keep ranks what a user has had, and --seen-aware would leave it out" in sentence
    assert not out.exists()
