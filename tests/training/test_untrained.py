"""Items that occur in held-out events only: counted, not recommended, and misses as targets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.recommender import Recommender, load
from linrec.runs.run import Run
from linrec.scoring import MISS
from linrec.serving import Engine
from linrec.serving.stores import open_store
from linrec.types import InputError
from tests.training.cases import SMALL, cycle_events

NEW = "new"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SequenceStore:
    """The last event of each of the first five users is an item that nobody has had before."""
    last = pl.col("time") == pl.col("time").max().over("user")
    few = pl.col("user") < 105
    events = cycle_events(12).with_columns(
        item=pl.when(last & few).then(pl.lit(NEW)).otherwise("item")
    )
    return prepare(events, tmp_path_factory.mktemp("untrained") / "data")


def trained(store: SequenceStore, out: Path | None = None, **settings: object) -> Recommender:
    return Recommender(**SMALL | {"epochs": 1} | settings).fit(store, out)


@pytest.mark.parametrize("backbone", ["sasrec", "bert4rec"])
def test_they_are_said_and_not_recommended(
    store: SequenceStore, tmp_path: Path, backbone: str
) -> None:
    with pytest.warns(UserWarning, match="1 of 17 items occur in held-out events only"):
        made = trained(store, tmp_path / "run", backbone=backbone)
    for model in (made, load(tmp_path / "run")):
        strangers = model.recommend([["unheard"]], k=17).to_polars()
        assert len(strangers) == 16
        assert NEW not in strangers["item"]
        shown = model.recommend(k=17, seen="keep").to_polars()
        assert shown["item"].n_unique() == 16
        assert NEW not in shown["item"]
        ranks = model.evaluate_users(seen="keep")[1]
        assert set(ranks.filter(pl.col("target") == NEW)["rank"]) == {MISS}
        assert ranks.filter(pl.col("target") != NEW)["rank"].max() < 16
    engine = Engine(tmp_path / "run", open_store("memory"))
    response = engine.recommend(history=["i00", "i01"], k=17, seen="keep")
    strangers = engine.recommend(history=["unheard"], k=17)
    asked = engine.recommend(history=["i00"], only=[NEW], exclude=["i03"], seen="keep")
    engine.close()
    assert NEW not in [item.item for item in strangers.items]
    assert "the items that pass the filters have no training event" in asked.notes[0]
    assert NEW not in [item.item for item in response.items]
    assert len(response.items) == 16


def test_a_list_of_nothing_else_says_so(store: SequenceStore) -> None:
    with pytest.warns(UserWarning, match="1 of 17 items"):
        model = trained(store)
    empty = "1 of 1 lists are empty"
    for seen in ("keep", "hide"):
        (note,) = model.recommend([["i01"]], only=[NEW], seen=seen).notes
        assert note.startswith(f"{empty}: the items that pass the filters have no training event: ")
    (note,) = model.recommend([["i01"]], only=[NEW, "i01"], seen="hide").notes
    assert note.startswith(f"{empty}: the only item that may be recommended had been seen")
    with pytest.raises(InputError, match="no item feature 'training_events'; it has none at all"):
        model.recommend([["i01"]], where={"training_events": [0]})


def test_a_final_training_learns_them(store: SequenceStore, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="a training with final learns them too"):
        made = trained(store, tmp_path / "run", final=True)
    for model in (made, load(tmp_path / "run")):
        assert NEW in model.recommend(k=17, seen="keep").to_polars()["item"]


def test_runs_of_early_versions_show_all(store: SequenceStore, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="1 of 17 items"):
        trained(store, tmp_path / "run")
    items = tmp_path / "run" / "items.parquet"
    table = pl.read_parquet(items)
    assert (
        table["training_events"].to_list()
        == np.where(table["item"] == NEW, 0, table["training_events"]).tolist()
    )
    (tmp_path / "run" / "manifest.json").unlink()
    table.drop("training_events").write_parquet(items)
    assert NEW in load(tmp_path / "run").recommend(k=17, seen="keep").to_polars()["item"]
    table.with_columns(training_events=pl.lit(0.5)).write_parquet(items)
    with pytest.raises(InputError, match="'training_events' must hold whole numbers"):
        Run.open(tmp_path / "run")
