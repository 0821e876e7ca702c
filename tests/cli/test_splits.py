"""Splits and targets from the command line: stored in the run and obeyed by all that follows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.recommender import Recommender, load
from tests.cli.conftest import Command, Refused
from tests.training.cases import SMALL, cycle_events

FLAGS = ["--recipe", "small", "--epochs", "1", "--width", "16", "--heads", "2", "--device", "cpu"]
TEMPORAL = ["--split", "temporal", "--valid-from", "2020-01-03", "--test-from", "2020-01-05"]


@pytest.fixture(scope="module")
def receipts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two items a day from 2020-01-01 on, each two one receipt."""
    path = tmp_path_factory.mktemp("shop") / "events.csv"
    day = pl.col("time") // 2
    events = cycle_events(24).with_columns(
        receipt=100 * pl.col("user") + day,
        time=pl.date(2020, 1, 1) + pl.duration(days=day),
    )
    events.write_csv(path)
    return path


@pytest.fixture(scope="module")
def shop(receipts: Path) -> Path:
    from linrec.data.preparing.prepare import prepare

    out = receipts.parent / "data"
    prepare(receipts, out, group="receipt")
    return out


@pytest.mark.parametrize(
    ("flags", "title"),
    [
        ([*TEMPORAL], "test split, temporal (valid from 2020-01-03, test from 2020-01-05), next e"),
        ([*TEMPORAL, "--targets", "every"], "every event, "),
        (["--targets", "basket"], "test split, leave-one-out, next basket, "),
        (["--split", "last-k", "--last", "2", "--targets", "2"], "last-k (2), next 2 events, "),
    ],
    ids=["temporal", "every", "basket", "last-k"],
)
def test_a_run_keeps_its_split(
    shop: Path, tmp_path: Path, linrec: Command, flags: list[str], title: str
) -> None:
    run = tmp_path / "run"
    trained = linrec("train", shop, "--out", run, *FLAGS, *flags)
    assert trained.code == 0, trained.err
    assert title in " ".join(trained.out.split())
    assert title in (run / "report.html").read_text()
    stored = json.loads((run / "config.json").read_text())["training"]
    assert stored["split"] == (flags[1] if flags[0] == "--split" else "leave-one-out")
    figures = json.loads(linrec("evaluate", run, "--json").out)
    assert figures["splitting"] == load(run).config.split.words
    assert figures["targets"] == load(run).config.split.targets
    assert figures == json.loads((run / "evaluation" / "test-full.json").read_text())
    several = figures["n_targets"] is not None and figures["n_rows"] < figures["n_targets"]
    assert several == (flags[-1] in ("basket", "2"))
    assert linrec("evaluate", run, "--split", "valid", "--protocol", "uni100").code == 0
    assert linrec("train", shop, "--out", run, *FLAGS, *flags, "--resume").code == 0


def test_runs_of_other_splits_are_not_compared(
    shop: Path, tmp_path: Path, refused: Refused
) -> None:
    for name, split in {"one": {}, "basket": {"targets": "basket"}}.items():
        Recommender(**SMALL | {"epochs": 1} | split).fit(shop, tmp_path / name)
    message = refused("compare", tmp_path / "one", tmp_path / "basket")
    assert "differ in their targets (next against basket)" in message
    changed = refused("train", shop, "--out", tmp_path / "one", "--resume", *FLAGS, *TEMPORAL)
    assert "was begun with other settings" in changed


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--split", "temporal"], "--split temporal needs --valid-from; add it"),
        (["--last", "3"], "--split leave-one-out has no use for --last; leave it out"),
        (["--targets", "baskets"], "--targets baskets must be next, a number of events, basket or"),
        ([*TEMPORAL[:-1], "2030-01-01"], "no user has a past and an event to test on with --test-"),
    ],
)
def test_mistakes_are_one_sentence(
    shop: Path, tmp_path: Path, refused: Refused, flags: list[str], message: str
) -> None:
    assert message in refused("train", shop, "--out", tmp_path / "run", *flags)
    assert not (tmp_path / "run").exists()


def test_nothing_after_the_time_is_learned(shop: Path) -> None:
    """Other items from then on, and the model is the same."""
    store = SequenceStore.open(shop)
    settings = SMALL | {"epochs": 2, "split": "temporal", "valid_from": "2020-01-03"}
    valid_from = datetime(2020, 1, 3, tzinfo=timezone.utc).timestamp()
    other = replace(store, items=np.where(store.times >= valid_from, 1, store.items), path=None)
    histories = []
    for data in (store, other):
        model = Recommender(**settings, test_from="2020-01-05").fit(data)
        assert model.trained is not None
        histories.append(model.trained.progress.history)
    first, second = ([row["loss"] for row in rows] for rows in histories)
    assert first == second
    assert histories[0][0]["ndcg@10"] != histories[1][0]["ndcg@10"]


def test_baskets_of_sorted_items_are_warned_of(tmp_path: Path, linrec: Command) -> None:
    from linrec.data.preparing.prepare import prepare

    log = cycle_events(24).with_columns(time=pl.col("time") // 3 * 60).sort("user", "time", "item")
    prepare(log, tmp_path / "data")
    trained = linrec("train", tmp_path / "data", "--out", tmp_path / "run", *FLAGS,
                     "--targets", "basket")  # fmt: skip
    assert trained.code == 0, trained.err
    assert "sorted by item id, which a model of baskets learns; prepare the data" in trained.out
