"""Item features and the settings of single backbones, from the command line to the run's files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from linrec.data.preparing.prepare import prepare
from linrec.recommender import Recommender, load
from linrec.training.callbacks import Callback
from tests.cli.conftest import Command, Refused
from tests.training.cases import (
    FIRST_USER,
    N_ITEMS,
    SMALL,
    contents,
    cycle_events,
    cycle_items,
    flags_of,
)

TINY: dict[str, Any] = SMALL | {"width": 8, "epochs": 1}
FLAGS = tuple(flags_of(TINY))
GENRES = ["Drama", "Comedy", "Horror"]


def item_features(items: int = N_ITEMS) -> pl.DataFrame:
    """One genre or two, a year, and a title; the last item has no row."""
    numbers = range(items)
    return cycle_items(items).with_columns(
        genre=pl.Series([sorted({GENRES[n % 3], GENRES[n % 2]}) for n in numbers][:-1]),
        release_year=pl.Series([str(1990 + n % 4) for n in numbers][:-1]),
    )


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with features."""
    path = tmp_path_factory.mktemp("features") / "films"
    prepare(cycle_events(), path, items=item_features())
    return path


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same events, of items about which nothing is known."""
    path = tmp_path_factory.mktemp("features") / "bare"
    prepare(cycle_events(), path)
    return path


@pytest.fixture(scope="module")
def featured(films: Path) -> Path:
    """A run that reads two features; copy it before you change it."""
    out = films.parent / "run"
    settings = TINY | {"backbone": "sasrecf", "features": "year,genre"}
    Recommender(**settings).fit(str(films), out)
    return out


@pytest.fixture
def copy(featured: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(featured, tmp_path / "copy"))


def described(run: Path) -> dict[str, Any]:
    return json.loads((run / "config.json").read_text())


# ------------------------------------------------------------------------------------ what works


def test_train_with_features(linrec: Command, films: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    chosen = ("--backbone", "sasrecf", "--features", "genre,year")
    result = linrec("train", films, "--out", run, *FLAGS, *chosen)
    assert result.code == 0, result.err
    assert "test split, 48 users" in result.out
    assert "takes the item's own id" not in result.out
    config = described(run)
    assert config["model"]["backbone"] == "sasrecf"
    assert config["model"]["features"] == ["genre", "release_year"]
    assert [field["name"] for field in config["features"]] == ["genre", "release_year"]
    genre, year = config["features"]
    assert (genre["kind"], genre["values"]) == ("multi", ["Comedy", "Drama", "Horror"])
    assert (year["kind"], year["values"]) == ("categorical", ["1990", "1991", "1992", "1993"])


@pytest.mark.parametrize(
    ("requested", "read"),
    [(None, ("genre", "release_year")), ("item, genre", ("item", "genre"))],
)
def test_the_settings_name_what_is_read(
    requested: str | None, read: tuple[str, ...], films: Path
) -> None:
    """Without names all but text; the id is a feature like others where it is named."""
    heard: list[str] = []
    callback = Callback()
    callback.on_message = heard.append  # type: ignore[method-assign]
    recommender = Recommender(**TINY, backbone="fdsa", features=requested)
    recommender.fit(films, callbacks=[callback])
    assert recommender.config.model.features == read
    assert heard == []


@pytest.mark.parametrize("backbone", ["sasrecf", "fdsa"])
def test_without_any_feature_the_id_is_one_and_it_says_so(
    backbone: str, linrec: Command, bare: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    result = linrec("train", bare, "--out", run, *FLAGS, "--backbone", backbone)
    assert result.code == 0, result.err
    assert (
        f"{bare} has no item features to learn from: {backbone} takes the item's own id"
        in result.out
    )
    assert "`linrec prepare` with a file of items adds some" in result.out
    config = described(run)
    assert config["model"]["features"] == ["item"]
    assert config["features"] == [
        {"name": "item", "kind": "id", "values": [], "bounds": [], "items": N_ITEMS}
    ]
    assert linrec("recommend", run, "--user", FIRST_USER).code == 0


# ----------------------------------------------------------------------------------- and after it


def test_evaluate_and_recommend(linrec: Command, copy: Path) -> None:
    shown = linrec("evaluate", copy, "--protocol", "full")
    assert shown.code == 0, shown.err
    assert "NDCG@10" in shown.out
    assert (copy / "evaluation" / "test-full.json").is_file()
    message = linrec("recommend", copy, "--history", "i03,i04", "-k", 3)
    assert message.code == 0, message.err
    assert message.err == ""
    assert message.out.count("Film") == 3


def test_compare_with_a_run_without_features(
    linrec: Command, copy: Path, films: Path, tmp_path: Path
) -> None:
    Recommender(**TINY).fit(str(films), tmp_path / "plain")
    result = linrec("compare", tmp_path / "plain", copy)
    assert result.code == 0, result.err
    assert "copy (B) against plain (A), 48 users" in result.out


def test_a_run_recommends_the_same_when_loaded(films: Path, tmp_path: Path) -> None:
    settings = TINY | {"backbone": "fdsa", "features": ("genre",)}
    fitted = Recommender(**settings).fit(str(films), tmp_path / "run")
    again = load(tmp_path / "run")
    assert again.config.model == fitted.config.model
    assert again.recommend(k=5).table.equals(fitted.recommend(k=5).table)


def test_the_vocabulary_is_the_runs_own(copy: Path, linrec: Command, tmp_path: Path) -> None:
    """The same users and items, prepared with other features: the run still knows its own."""
    other = tmp_path / "other"
    prepare(cycle_events(), other, items=item_features().with_columns(genre=pl.lit("Western")))
    result = linrec("recommend", copy, "--all", "--data", other, "--out", tmp_path / "a.csv")
    assert result.code == 0, result.err
    expected = load(copy).recommend().table
    assert pl.read_csv(tmp_path / "a.csv")["item"].to_list() == expected["item"].to_list()


# ------------------------------------------------------------------------------------------ resume

SAME = (*FLAGS, "--backbone", "sasrecf", "--resume", "--epochs", 2)


def test_resume(linrec: Command, films: Path, copy: Path) -> None:
    """Under a name that means the same, too."""
    result = linrec("train", films, "--out", copy, *SAME, "--features", "release_year,genres")
    assert result.code == 0, result.err
    assert "epoch   2" in result.out
    assert "epoch   1" not in result.out
    assert described(copy)["model"]["features"] == ["release_year", "genre"]


@pytest.mark.parametrize("words", [["--features", "genre"], ["--features", "item"], []])
def test_resume_with_other_features_is_refused(
    words: list[str], refused: Refused, films: Path, copy: Path
) -> None:
    """No names means all of them, in the dataset's order: genre first."""
    before = contents(copy)
    assert "other settings" in refused("train", films, "--out", copy, *SAME, *words)
    assert contents(copy) == before


YEAR = pl.col("release_year")


@pytest.mark.parametrize(
    "year", [YEAR.reverse(), "2" + YEAR.str.slice(1)], ids=["other values", "another vocabulary"]
)
def test_resume_after_the_features_changed_is_refused(
    year: pl.Expr, refused: Refused, copy: Path, tmp_path: Path
) -> None:
    """The same users, items and names of features, but the codes mean something else now."""
    before = contents(copy)
    items = item_features().with_columns(release_year=year)
    prepare(cycle_events(), tmp_path / "changed", items=items)
    words = ("train", tmp_path / "changed", "--out", copy, *SAME, "--features", "year,genre")
    assert "features" in refused(*words)
    assert contents(copy) == before


# ------------------------------------------------------------------------------------- what is not


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--features", "genre"], "the backbone sasrec has no use for features"),
        (["--features", "genre"], "choose --backbone sasrecf or --backbone fdsa"),
        (["--mask-ratio", 0.3], "the backbone sasrec has no use for mask_ratio"),
        (["--mask-ratio", 0.3], "leave --mask-ratio out, or choose --backbone bert4rec"),
        (["--backbone", "bert4rec", "--temperature", 1], "the backbone bert4rec has no use"),
        (["--backbone", "bert4rec", "--temperature", 1], "or choose --backbone core"),
        (["--backbone", "core", "--features", "genre"], "the backbone core has no use"),
        (
            ["--backbone", "bert4rec", "--objective", "all-positions"],
            "bert4rec cannot be trained on all-positions; choose --objective cloze or --obj",
        ),
        (
            ["--backbone", "bert4rec", "--objective", "last-position", "--mask-ratio", 0.3],
            "bert4rec trained on last-position has no use for mask_ratio; leave --mask-ratio out, "
            "or choose --objective cloze",
        ),
        (["--objective", "cloze"], "sasrec cannot be trained on cloze; choose --objective all-"),
        (
            ["--backbone", "gru"],
            "unknown backbone 'gru'; choose from sasrec, sasrecf, fdsa, bert4rec, core",
        ),
        (["--backbone", "bert4rec", "--mask-ratio", 1], "--mask-ratio 1.0 must be at least 0"),
        (["--backbone", "core", "--temperature", 0], "--temperature 0.0 must be positive"),
        (["--backbone", "fdsa", "--features", " ,"], "features names none; give them as genre,yea"),
        (
            ["--backbone", "fdsa", "--features", "genre,director"],
            "'director' is not a feature of the dataset; choose from genre, release_year, item",
        ),
        (
            ["--backbone", "sasrecf", "--features", "title"],
            "title is text, which no backbone reads; choose from genre, release_year, item",
        ),
    ],
)
def test_training_that_cannot_be(
    words: list[object], message: str, films: Path, refused: Refused, tmp_path: Path
) -> None:
    assert message in refused("train", films, "--out", tmp_path / "run", *FLAGS, *words)
    assert not (tmp_path / "run").exists()


def test_features_of_a_dataset_without_any(bare: Path, refused: Refused, tmp_path: Path) -> None:
    words = ("--backbone", "sasrecf", "--features", "genre,year")
    message = refused("train", bare, "--out", tmp_path / "run", *FLAGS, *words)
    assert "no feature 'genre' nor any other" in message
    assert (
        "prepare it again with --items set to a file of items, or leave --features out" in message
    )
    assert not (tmp_path / "run").exists()
