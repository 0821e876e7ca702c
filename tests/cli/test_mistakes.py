"""Every mistake: one sentence on stderr, exit code 2, no traceback, nothing written."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from linrec.recommender import Recommender
from tests.cli.conftest import Command, Refused
from tests.training.cases import SMALL, contents, cycle, cycle_events, flags_of

NOWHERE = "no/such/place"
FLAGS = flags_of(SMALL)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prepare", NOWHERE, "--out", "data"], "no/such/place does not exist"),
        (["describe", NOWHERE], "no dataset at no/such/place"),
        (["train", NOWHERE, "--out", "run"], "no/such/place does not exist"),
        (["evaluate", NOWHERE], "no/such/place is not a run"),
        (["recommend", NOWHERE, "--user", "1"], "no/such/place is not a run"),
        (["compare", NOWHERE, NOWHERE], "no/such/place is not a run"),
        (["compare", NOWHERE, NOWHERE, "--split", "all"], "no/such/place is not a run"),
        (["train", "."], "Missing option '--out'"),
        (["trian"], "No such command 'trian'"),
        (["train", ".", "--out", "run", "--speed", "9"], "No such option: --speed"),
        (["train", ".", "--out", "run", "--epochs", "ten"], "Invalid value for '--epochs'"),
        (["demo", "--users", "3"], "Invalid value for '--users'"),
        (["recommend", NOWHERE, "--all", "-k", "0"], "Invalid value for '-k'"),
    ],
)
def test_mistakes_without_any_data(words: list[str], message: str, refused: Refused) -> None:
    assert message in refused(*words)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--width", 64, "--heads", 5], "width 64 must be a multiple of heads 5; try --heads 4"),
        (["--attention", "flash"], "unknown attention 'flash'; choose from softmax, linrec"),
        (["--backbone", "gru"], "unknown backbone 'gru'; choose from sasrec"),
        (["--recipe", "fast"], "unknown recipe 'fast'; choose from bert4rec, default"),
        (["--recipe", "none.toml"], "cannot read recipe none.toml: No such file"),
        (["--device", "abacus"], "device 'abacus' cannot be used"),
        (["--precision", "fp8"], "precision must be 'float32', 'bfloat16' or 'auto', not 'fp8'"),
        (
            ["--objective", "first"],
            "must be 'all-positions', 'last-position' or 'cloze', not 'first'",
        ),
        (["--epochs", 0], "--epochs 0 must be at least 1"),
        (["--dropout", 1.5], "--dropout 1.5 must be at least 0 and below 1"),
        (["--objective", "cloze"], "sasrec cannot be trained on cloze; choose --objective all-"),
        (
            ["--temperature", 1],
            "leave --temperature out, or choose --backbone core",
        ),
        (["--seed", -1], "--seed -1 must be at least 0"),
        (["--resume"], "run is not a run"),
    ],
)
def test_training_that_cannot_be(
    words: list[object], message: str, dataset: Path, refused: Refused
) -> None:
    assert message in refused("train", dataset, "--out", "run", *words)
    assert list(Path().iterdir()) == []


def test_a_training_that_diverges_is_not_a_mistake(dataset: Path, linrec: Command) -> None:
    flags = ["--learning-rate", 1e30, "--norm", "pre", "--epochs", 50]
    result = linrec("train", dataset, "--out", "run", *FLAGS, *flags)
    assert result.code == 3, result
    assert "linrec: the loss became" in result.err
    assert result.err.endswith("try a smaller --learning-rate\n")


def test_a_recipe_with_a_typo(dataset: Path, refused: Refused) -> None:
    Path("mine.toml").write_text("[model]\nwidht = 64\n")
    message = refused("train", dataset, "--out", "run", "--recipe", "mine.toml")
    assert "recipe mine.toml: unknown setting 'widht' in [model]" in message
    assert not Path("run").exists()


def test_a_run_that_exists(dataset: Path, run: Path, refused: Refused) -> None:
    before = contents(run)
    message = refused("train", dataset, "--out", run)
    assert "already holds a run; add --resume to continue it, --overwrite" in message
    assert "other settings" in refused("train", dataset, "--out", run, "--resume")
    assert "not both" in refused("train", dataset, "--out", run, "--resume", "--overwrite")
    assert contents(run) == before


def test_a_place_that_is_not_ours(dataset: Path, refused: Refused) -> None:
    Path("thesis").mkdir()
    Path("thesis/chapter.tex").write_text("precious")
    for flags in ([], ["--overwrite"]):
        assert "was not made by linrec" in refused("train", dataset, "--out", "thesis", *flags)
        assert "choose another path" in refused("train", dataset, "--out", dataset, *flags)
    assert "is not a folder" in refused("train", dataset, "--out", "thesis/chapter.tex")
    assert Path("thesis/chapter.tex").read_text() == "precious"


def test_a_folder_that_is_no_dataset(refused: Refused) -> None:
    Path("empty").mkdir()
    message = refused("train", "empty", "--out", "run")
    assert "the folder empty holds no file of a known format" in message
    assert not Path("run").exists()


def test_evaluations_that_cannot_be(run: Path, refused: Refused) -> None:
    before = contents(run)
    assert "unknown protocol 'half'; choose from" in refused("evaluate", run, "--protocol", "half")
    assert "unknown split 'train'; choose valid" in refused("evaluate", run, "--split", "train")
    assert "must be positive integers" in refused("evaluate", run, "-k", 0)
    assert "seed must not be negative" in refused("evaluate", run, "--seed", -1)
    assert "no/such/place does not exist" in refused("evaluate", run, "--data", NOWHERE)
    other = cycle(Path("other"), seed=9).path
    assert "other is not the dataset of this run" in refused("evaluate", run, "--data", other)
    assert contents(run) == before


def test_runs_of_different_datasets_are_not_compared(run: Path, refused: Refused) -> None:
    cycle(Path("data"), seed=9)
    Recommender(**SMALL | {"epochs": 1}).fit("data", "other")
    copy = shutil.copytree(run, "copy")
    assert "the two evaluations differ in their dataset" in refused("compare", copy, "other")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give exactly one of --user, --history, --users-file and --all"),
        (["--user", "100", "--history", "i03"], "give exactly one of"),
        (["--all", "--user", "100"], "give exactly one of"),
        (["--user", "nobody"], "user 'nobody' is not in the dataset"),
        (["--users-file", "none.txt"], "cannot read none.txt: No such file"),
        (["--users-file", "."], "cannot read .: Is a directory"),
        (["--all", "--out", "recs.xlsx"], "format of recs.xlsx; end it in .parquet, .csv, .jsonl"),
        (["--user", "100", "--data", NOWHERE], "no/such/place does not exist"),
    ],
)
def test_recommendations_that_cannot_be(
    words: list[str], message: str, run: Path, refused: Refused
) -> None:
    assert message in refused("recommend", run, *words)
    assert list(Path().iterdir()) == []


def test_users_files_that_name_nobody(run: Path, refused: Refused) -> None:
    Path("empty.txt").write_text(" \n\n")
    assert "empty.txt names no users" in refused("recommend", run, "--users-file", "empty.txt")
    Path("noise.txt").write_bytes(b"\xff\xfe\x00\x9f")
    assert "noise.txt: it is not text" in refused("recommend", run, "--users-file", "noise.txt")


def fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)


def test_a_full_disk_leaves_the_old_run(
    dataset: Path, run: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(run, "copy"))
    cycle_events().write_csv("events.csv")
    before = contents(copy)
    fill_the_disk(monkeypatch)
    for words in (
        ("train", dataset, "--out", copy, "--overwrite"),
        ("train", dataset, "--out", "new"),
        ("evaluate", copy),
        ("recommend", copy, "--user", 100, "--out", "recs.csv"),
        ("prepare", "events.csv", "--out", "data"),
    ):
        assert "the disk is full" in refused(*words)
    assert contents(copy) == before
    assert {path.name for path in Path().iterdir()} == {"copy", "events.csv"}


def test_ctrl_c_outside_training_is_130(
    run: Path, linrec: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recommender, "recommend", pressed)
    result = linrec("recommend", run, "--user", 100)
    assert result.code == 130
    assert "Traceback" not in result.err


def test_an_error_of_the_system_is_one_sentence(
    run: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/secret")

    monkeypatch.setattr(Recommender, "recommend", denied)
    assert "/secret: Permission denied" in refused("recommend", run, "--user", 100)


def test_no_words_show_the_help(linrec: Command) -> None:
    result = linrec()
    assert "Usage: linrec" in result.out
    assert result.err == ""
