"""The benchmarks of warm starts, of items without events and of diversity, on a made-up town."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks import cold_items, diversity, warm
from benchmarks.results import with_row

DAYS, PLACES = 40, 30


@pytest.fixture
def town(tmp_path: Path) -> Path:
    """Events in RecBole's format; places after the 25th open in the last ten days."""
    rng = np.random.default_rng(0)
    rows = []
    for person in range(40):
        for day in range(DAYS):
            place = int(rng.integers(PLACES if day >= DAYS - 10 else 25))
            at = day * warm.DAY + int(rng.integers(60_000))
            rows.append((person, place, 1, at))
    names = ["user_id:token", "item_id:token", "rating:float", "timestamp:float"]
    log = pl.DataFrame(rows, schema=names, orient="row")
    log.write_csv(tmp_path / "town.inter", separator="\t")
    items = [(place, place % 3, place / 10, 0.0) for place in range(PLACES)]
    columns = ["item_id:token", "category_id:token", "latitude:float", "longitude:float"]
    table = pl.DataFrame(items, schema=columns, orient="row")
    table.write_csv(tmp_path / "town.item", separator="\t")
    return tmp_path / "town.inter"


def arguments(data: Path, **more: object) -> Namespace:
    given = {"data": data, "users": 40, "days": 5.0, "seed": 0, "epochs": 2}
    return Namespace(**given | more)


@pytest.mark.slow
def test_a_row_for_each_gap(town: Path) -> None:
    args = arguments(town, gap=[1.0, 8.0], warm_epochs=[1], rate=[1.0, 0.5], width=16)
    day, week = warm.measure(args)
    assert (day["gap"], week["gap"]) == (1.0, 8.0)
    assert day["new_events"] < week["new_events"]
    assert day["items"]["new"] <= week["items"]["new"]
    assert day["full"] == week["full"]
    for row in (*day["warm"], *week["warm"]):
        assert row["epochs"] == 1
        assert row["share_of_ndcg"] == row["ndcg@10"] / day["full"]["ndcg@10"]
    rates = [row["learning_rate"] for row in day["warm"]]
    assert rates[1] == rates[0] / 2


@pytest.mark.slow
def test_cold_items_are_found_by_where_they_are(town: Path) -> None:
    args = arguments(town, vectors="coordinates", vector_width=16, item_events=1)
    store, end = cold_items.prepared(args)
    row = cold_items.measure(args, store, end, 0.3)
    assert row["cold_items"] == PLACES - 25
    assert row["cold_targets"] > 0
    assert row["among_all"]["popularity"][0] == 0.0
    assert row["among_cold"]["model"] == [1.0, 1.0]  # of five
    assert row["among_all"]["model"][1] == 1.0  # of thirty


def test_near_places_have_similar_vectors() -> None:
    columns = {"latitude:float": [52.0, 52.001, 53.0, -30.0], "longitude:float": [13.0] * 4}
    vectors = cold_items.places(pl.DataFrame(columns), 512, seed=0)
    near, far, farthest = (vectors[0] @ other for other in vectors[1:])
    assert near > far > farthest


def test_a_row_replaces_its_like_and_leaves_those_of_before(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    with_row(out, "c", {"data": "a", "figure": 1}, ("data",))
    with_row(out, "c", {"data": "a", "gap": 1, "figure": 2}, ("data", "gap"))
    with_row(out, "c", {"data": "a", "gap": 1, "figure": 3}, ("data", "gap"))
    text = out.read_text()
    assert '"figure": 1' in text
    assert '"figure": 2' not in text
    assert '"figure": 3' in text


@pytest.mark.slow
def test_what_diversity_costs(town: Path) -> None:
    args = arguments(town, ties="file", item_events=1, recipe="small", diversity=[0.3, 1.0])
    plain, some, most = diversity.measure(args)
    assert [row["diversity"] for row in (plain, some, most)] == [0.0, 0.3, 1.0]
    assert "share_of_ndcg" not in plain
    for row in (some, most):
        assert row["alike_by"] == plain["alike_by"] != []
        assert row["difference"][0] == pytest.approx(
            row["ndcg@10"][0] - plain["ndcg@10"][0], abs=2e-5
        )
        assert row["share_of_ndcg"] == pytest.approx(
            row["ndcg@10"][0] / plain["ndcg@10"][0], rel=1e-2
        )
    assert plain["diversity@10"][0] < min(row["diversity@10"][0] for row in (some, most))


def test_the_table_of_diversity_is_that_of_the_results() -> None:
    page = diversity.PAGE.read_text("utf-8")
    assert diversity.rendered(page) == page
    assert page.count("| ml-1m | 0 | ") == page.count("| ml-latest-small | 0 | ") == 1


@pytest.mark.parametrize("module", [warm, cold_items])
def test_the_tables_of_warm_starts_and_cold_items_are_those_of_the_results(module: Any) -> None:
    page = module.PAGE.read_text("utf-8")
    assert module.rendered(page) == page


def test_a_row_of_each_version_of_the_benchmark_is_shown() -> None:
    full = {"ndcg@10": 0.2, "epochs": 24}
    warm_start = {"ndcg@10": 0.1, "epochs": 5, "share_of_ndcg": 0.5}
    early = {"users": 20, "days": 28.0, "seed": 0, "items": {"old": 9, "new": 1}, "full": full}
    timed = {**warm_start, "share_of_time": 0.25, "learning_rate": 1.0}
    slow = {**timed, "ndcg@10": 0.15, "learning_rate": 0.5}
    longer = {**timed, "ndcg@10": 0.19, "epochs": 6}
    rows = [
        {**early, "gap": 7.0, "warm": [slow, timed, longer]},
        {**early, "warm": warm_start, "share_of_ndcg": 0.5},
    ]
    assert warm.table(rows).splitlines()[2:] == [
        "| 20 | a week old | 1 of 10 | 0 | 24 | 0.2000 | 0.1000 | 50.0 % | 25.0 % |",
        "| 20 | four weeks old | 1 of 10 | 0 | 24 | 0.2000 | 0.1000 | 50.0 % | not measured |",
    ]
