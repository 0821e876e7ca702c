"""Every command does what its help says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from linrec.recommender import Recommender, load
from tests.cli.conftest import Command
from tests.training.cases import (
    FIRST_USER,
    N_USERS,
    SMALL,
    contents,
    cycle_events,
    flags_of,
    history_without_times,
)

COMMANDS = (
    *("download", "prepare", "describe", "train", "recipes", "evaluate", "compare"),
    *("recommend", "demo"),
)
FLAGS = tuple(flags_of(SMALL | {"epochs": 2}))


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


# ----------------------------------------------------------------------------------------- the help


def test_help_does_not_wait_for_torch() -> None:
    """Neither the list of commands nor the help of any of them; polars is not needed either."""
    program = f"""
import sys
from linrec.cli import main
for words in [], ["--version"], *([name] for name in {COMMANDS}):
    sys.argv = ["linrec", *words, *(["--help"] if words != ["--version"] else [])]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, (words, ended.code)
heavy = {{"torch", "polars", "numpy", "lightning_fabric", "matplotlib"}} & sys.modules.keys()
assert not heavy, heavy
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "120", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "linrec-decay" in ended.stdout  # the settings are flags of `train`
    assert "linrec 0." in ended.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_examples(name: str, linrec: Command) -> None:
    result = linrec(name, "--help")
    assert result.code == 0
    assert "Examples" in result.out
    assert f"linrec {name}" in result.out


def test_help_names_the_extra_that_export_needs(linrec: Command) -> None:
    assert "pip install 'linrec[onnx]'" in linrec("export", "--help").out


def test_every_setting_is_a_flag_with_its_default(linrec: Command) -> None:
    from linrec.runs.config import SETTINGS

    shown = linrec("train", "--help").out
    for name in SETTINGS:
        assert f"--{name.replace('_', '-')} " in shown
    assert "[linrec-decay]" in shown
    assert "[2048]" in shown
    assert "One of float32, bfloat16, auto." in " ".join(shown.replace("│", " ").split())


# ---------------------------------------------------------------------------------- train and after


def test_the_whole_path(linrec: Command, tmp_path: Path) -> None:
    cycle_events().write_csv(tmp_path / "events.csv")
    data, run = tmp_path / "data", tmp_path / "run"
    assert linrec("prepare", tmp_path / "events.csv", "--out", data).code == 0
    assert "48" in linrec("describe", data).out
    trained = linrec("train", data, "--out", run, *FLAGS)
    assert trained.code == 0, trained.err
    assert trained.out.count("NDCG@10 0.") >= 2  # a line an epoch
    assert "Best validation NDCG@10" in trained.out
    assert "test split, 48 users, full ranking, seen items hidden" in trained.out
    held = contents(run).keys()
    assert {
        *("config.json", "model.safetensors", "items.parquet", "history.csv"),
        *("learning-curve.png", "evaluation/test-full.json", "evaluation/test-full.parquet"),
    } <= held
    assert any(name.startswith("tensorboard/") for name in held)
    assert not [name for name in held if name.endswith((".pt", ".pth", ".pkl", ".pickle", ".npz"))]
    shown = linrec("recommend", run, "--user", FIRST_USER, "-k", 3)
    assert shown.code == 0
    assert shown.out.count("\n") == 7
    assert linrec("evaluate", run, "--protocol", "pop100").code == 0


def test_train_without_tensorboard(
    linrec: Command, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert linrec("train", dataset, "--out", tmp_path / "run", *FLAGS).code == 0
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert (tmp_path / "run" / "learning-curve.png").is_file()


def test_python_leaves_exactly_what_the_command_leaves(
    linrec: Command, dataset: Path, tmp_path: Path
) -> None:
    command, python = tmp_path / "command" / "run", tmp_path / "python" / "run"
    assert linrec("train", dataset, "--out", command, *FLAGS).code == 0
    Recommender(**SMALL | {"epochs": 2}).fit(str(dataset), python)
    files = [contents(folder) for folder in (command, python)]
    # times are in the names and contents of some files, whose checksums are in the manifest
    dated = ("tensorboard/", "checkpoint.safetensors", "history.csv", "manifest.json")
    same = [{k: v for k, v in found.items() if not k.startswith(dated)} for found in files]
    assert same[0] == same[1]
    assert {"report.html", "evaluation/test-full.json", "learning-curve.png"} <= same[0].keys()
    names = [sorted(name.split(".tfevents")[0] for name in found) for found in files]
    assert names[0] == names[1]
    assert history_without_times(command).equals(history_without_times(python))
    tensors = [load_file(folder / "checkpoint.safetensors") for folder in (command, python)]
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(value, tensors[1][name]) for name, value in tensors[0].items())


def test_a_training_that_diverges_is_one_sentence_and_not_an_input_error(
    linrec: Command, dataset: Path, tmp_path: Path
) -> None:
    wild = ("--learning-rate", "1e30", "--norm", "pre", "--epochs", 50)
    result = linrec("train", dataset, "--out", tmp_path / "run", *FLAGS, *wild)
    assert result.code == 3
    assert "try a smaller --learning-rate" in result.err
    assert result.err.count("\n") == 1


def test_train_resumes_and_overwrites(linrec: Command, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert linrec("train", dataset, "--out", run, *FLAGS).code == 0
    assert linrec("evaluate", run, "--protocol", "uni100").code == 0
    more = linrec("train", dataset, "--out", run, *FLAGS, "--epochs", 3, "--resume")
    assert more.code == 0, more.err
    assert "epoch   3" in more.out
    assert "epoch   2" not in more.out
    assert json.loads((run / "config.json").read_text())["training"]["epochs"] == 3
    again = linrec("train", dataset, "--out", run, *FLAGS, "--epochs", 1, "--overwrite")
    assert again.code == 0, again.err
    assert len(pl.read_csv(run / "history.csv")) == 1
    assert not (run / "evaluation" / "test-uni100.json").exists()


def test_train_with_a_recipe(linrec: Command, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        "[model]\nwidth = 8\nheads = 2\nlayers = 1\nattention = 'softmax'\n[training]\nepochs = 5\n"
    )
    run = tmp_path / "run"
    recipe = tmp_path / "mine.toml"
    result = linrec("train", dataset, "--out", run, "--recipe", recipe, "--epochs", 1)
    assert result.code == 0, result.err
    config = load(run).config
    assert (config.model.width, config.model.attention) == (8, "softmax")
    assert config.training.epochs == 1


def test_recipes(linrec: Command) -> None:
    shown = linrec("recipes").out
    for name in ("default", "small", "ml-1m", "paper-ml-1m", "paper-gowalla"):
        assert name in shown
    assert "max_length 200" in shown
    assert "nothing" in shown  # the default differs in nothing from itself


# ----------------------------------------------------------------------------------------- evaluate


def test_evaluate_prints_and_saves(linrec: Command, copy: Path) -> None:
    shown = linrec("evaluate", copy, "-k", 5, "-k", 1)
    assert shown.code == 0
    for word in ("Recall@1", "NDCG@5", "MRR", "popularity", "95 % interval", "copy"):
        assert word in shown.out
    saved = json.loads((copy / "evaluation" / "test-full.json").read_text())
    assert saved["ks"] == [1, 5]
    assert saved["metrics"]["recall@5"]["mean"] > 0.9
    assert len(pl.read_parquet(copy / "evaluation" / "test-full.parquet")) == N_USERS


def test_evaluate_renews_the_report(linrec: Command, copy: Path) -> None:
    report = copy / "report.html"
    before = report.read_text()
    assert "NDCG@10" in before
    assert linrec("compare", copy, copy, "--split", "valid").code == 0
    assert report.read_text() == before  # only evaluate writes it
    assert linrec("evaluate", copy, "--split", "valid", "-k", 3).code == 0
    after = report.read_text()
    assert "valid split" in after
    assert "NDCG@3" in after
    assert "NDCG@10</td>" not in after
    report.unlink()
    assert linrec("evaluate", copy).code == 0
    assert report.read_text() == before


def test_each_protocol_has_a_file_of_its_own(linrec: Command, copy: Path) -> None:
    linrec("evaluate", copy, "--split", "valid")
    linrec("evaluate", copy, "--seen", "keep")
    as_json = linrec("evaluate", copy, "--protocol", "pop100", "--seed", 3, "--json")
    assert json.loads(as_json.out)["protocol"] == "pop100"
    assert {path.name for path in (copy / "evaluation").glob("*.json")} == {
        "test-full.json",  # of the training
        "valid-full.json",
        "test-full-seen.json",
        "test-pop100-seed3.json",
    }


def test_a_note_is_shown_once(linrec: Command, copy: Path) -> None:
    shown = " ".join(linrec("evaluate", copy, "-k", 50).out.split())
    assert shown.count("the catalogue has 16 items") == 1


def test_evaluate_where_the_data_is_now(linrec: Command, copy: Path, dataset, tmp_path) -> None:
    moved = shutil.copytree(dataset, tmp_path / "moved")
    assert linrec("evaluate", copy, "--data", moved).code == 0


# ------------------------------------------------------------------------------------------ compare


def test_a_run_does_not_differ_from_itself(linrec: Command, copy: Path) -> None:
    evaluated = copy / "evaluation" / "valid-full.parquet"
    assert not evaluated.exists()
    found = json.loads(linrec("compare", copy, copy, "--split", "valid", "--json").out)
    assert found["ndcg@10"]["t_p"] == found["ndcg@10"]["wilcoxon_p"] == 1
    assert found["ndcg@10"]["difference"]["mean"] == 0
    assert evaluated.is_file()  # what was missing was evaluated


def test_compare_tells_a_worse_run(linrec: Command, copy: Path, dataset: Path, tmp_path) -> None:
    worse = tmp_path / "worse"
    Recommender(**SMALL | {"epochs": 1, "learning_rate": 1e-6}).fit(str(dataset), worse)
    shown = linrec("compare", worse, copy, "--protocol", "full", "--split", "valid")
    assert shown.code == 0
    assert "copy (B) against worse (A), 48 users" in shown.out
    found = json.loads(linrec("compare", worse, copy, "--split", "valid", "--json").out)
    assert found["ndcg@10"]["difference"]["low"] > 0
    assert found["ndcg@10"]["t_p"] < 0.01


# ---------------------------------------------------------------------------------------- recommend


def test_recommend_a_history(linrec: Command, run: Path) -> None:
    result = linrec("recommend", run, "--history", "i13, i14,i15,", "-k", 2)
    assert result.code == 0
    assert "i00" in result.out
    assert "[REC] (2007)" in result.out  # not markup
    assert result.err == ""


def test_recommend_tells_what_it_could_not_use(linrec: Command, run: Path) -> None:
    some = linrec("recommend", run, "--history", "i03,zzz")
    assert "skipped 1 events" in some.err
    none = linrec("recommend", run, "--history", "zzz,yyy")
    assert none.code == 0
    assert "most popular items instead" in none.err
    assert none.out.count("\n") > 10


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_recommend_into_a_file(ending: str, linrec: Command, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / f"recs.{ending}"
    result = linrec("recommend", run, "--all", "-k", 3, "--out", out)
    assert result.code == 0, result.err
    assert f"wrote {3 * N_USERS} recommendations" in result.err
    read = {"parquet": pl.read_parquet, "csv": pl.read_csv, "jsonl": pl.read_ndjson}[ending]
    found = read(out)
    assert found.columns == ["user", "rank", "item", "score", "source", "title"]
    assert found.select("user", "rank", "item").equals(
        load(run).recommend(k=3).table.select("user", "rank", "item")
    )


def test_recommend_users_of_a_file(linrec: Command, run: Path, tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    users.write_bytes(b"\xef\xbb\xbf105\r\n\n 101 \n")  # as Notepad saves it
    result = linrec("recommend", run, "--users-file", users, "--out", tmp_path / "r.csv", "-k", 1)
    assert result.code == 0, result.err
    assert pl.read_csv(tmp_path / "r.csv")["user"].to_list() == [105, 101]
    shown = linrec("recommend", run, "--users-file", users, "-k", 1)
    assert "105" in shown.out


def test_recommend_keeps_seen_when_asked(linrec: Command, run: Path) -> None:
    words = ("recommend", run, "--history", "i03,i04", "-k", 16)
    assert "i03" not in linrec(*words).out
    assert "i03" in linrec(*words, "--seen", "keep").out


def test_recommend_from_newer_data(linrec: Command, run: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer.csv"
    newer.write_text("user,item,time\nzoe,n1,1\nzoe,i08,2\nzoe,i09,3\n")
    result = linrec("recommend", run, "--user", "zoe", "--data", newer, "-k", 1)
    assert result.code == 0, result.err
    assert "i10" in result.out
    assert "skipped 1 events" in result.err
