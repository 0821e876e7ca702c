"""Recommendations: for anyone, in the caller's own ids, ranked as the evaluation ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import linrec
from linrec.data.dataset.store import SequenceStore
from linrec.recommender import Recommender
from linrec.types import InputError
from tests.training.cases import FIRST_USER, N_ITEMS, SMALL, cycle_events, cycle_items
from tests.training.fixtures import dataset, run, store, trained

__all__ = ["dataset", "run", "store", "trained"]

A, B = FIRST_USER, FIRST_USER + 1
COLUMNS = ["user", "rank", "item", "score", "source", "title"]


def history(store: SequenceStore, user: int) -> list[str]:
    row = store.sequences()[int(store.users.index_of([user])[0])]
    return store.catalogue.ids_of(row).to_list()


def items(found: linrec.Recommendations, who: object) -> list[str]:
    return found.table.filter(pl.col("user") == who)["item"].to_list()


# ----------------------------------------------------------------------------- who can be given


def test_the_next_item_comes_first(trained: Recommender) -> None:
    found = trained.recommend([["i03", "i04", "i05"], ["i10"]], k=3)
    assert found.table.columns == COLUMNS
    assert items(found, 0)[0] == "i06"
    assert items(found, 1)[0] == "i11"
    assert found.table["rank"].to_list() == [1, 2, 3] * 2
    assert found.table["user"].to_list() == [0, 0, 0, 1, 1, 1]
    for _, rows in found.table.group_by("user"):
        assert rows["score"].is_sorted(descending=True)
    assert set(found.table["source"]) == {"model"}
    assert found.notes == ()


def test_users_by_their_ids_are_users_by_their_histories(trained: Recommender, store) -> None:
    by_id = trained.recommend([B, A], k=4)
    by_history = trained.recommend([history(store, B), history(store, A)], k=4)
    assert by_id.table["user"].to_list() == [B] * 4 + [A] * 4  # in the given order
    assert by_id.table.drop("user").equals(by_history.table.drop("user"))


@pytest.mark.parametrize(
    "who",
    [
        [A, B],
        (A, B),
        [str(A), str(B)],
        [float(A), float(B)],
        np.array([A, B]),
        np.array([str(A), str(B)]),
        pl.Series([A, B]),
        pl.Series("anything", [str(A), str(B)]),
        pd.Series([A, B], index=["x", "y"]),
        range(A, B + 1),
        (user for user in (A, B)),
        {A: "dict keys", B: "are users"}.keys(),
    ],
    ids=lambda who: type(who).__name__,
)
def test_users_may_come_in_any_list(trained: Recommender, who) -> None:
    expected = trained.recommend([A, B], k=3).table
    assert expected["user"].dtype == pl.Int64
    assert trained.recommend(who, k=3).table.equals(expected)


@pytest.mark.parametrize(
    "who",
    [
        [["i03", "i04"], ["i10", "i11"]],
        [("i03", "i04"), ("i10", "i11")],
        (("i03", "i04"), ("i10", "i11")),
        np.array([["i03", "i04"], ["i10", "i11"]]),
        [np.array(["i03", "i04"]), np.array(["i10", "i11"])],
        [pl.Series(["i03", "i04"]), pd.Series(["i10", "i11"])],
        pl.Series([["i03", "i04"], ["i10", "i11"]]),
        [iter(["i03", "i04"]), iter(["i10", "i11"])],
    ],
    ids=lambda who: type(who).__name__,
)
def test_histories_may_come_in_any_list(trained: Recommender, who) -> None:
    expected = trained.recommend([["i03", "i04"], ["i10", "i11"]], k=3)
    assert trained.recommend(who, k=3).table.equals(expected.table)


@pytest.mark.filterwarnings("error::polars.exceptions.PerformanceWarning")
@pytest.mark.parametrize("kind", ["polars", "lazy", "pandas"])
def test_a_frame_of_events(trained: Recommender, kind: str) -> None:
    frame = pl.DataFrame(
        {
            "item": ["i05", "i10", "i04", "i99", "i03"],
            "user": ["new", "b", "new", "b", "new"],
            "time": [3, 1, 2, 2, 1],  # not in order
        }
    )
    given = {"polars": frame, "lazy": frame.lazy(), "pandas": frame.to_pandas()}[kind]
    found = trained.recommend(given, k=2)
    assert items(found, "new") == items(trained.recommend([["i03", "i04", "i05"]], k=2), 0)
    assert items(found, "b")[0] == "i11"
    assert found.notes == ("skipped 1 events with items the model does not know",)


def test_everyone(trained: Recommender, store: SequenceStore) -> None:
    found = trained.recommend(k=2)
    assert found.table["user"].unique(maintain_order=True).to_list() == store.users.ids.to_list()
    assert len(found) == 2 * store.n_users


def test_nobody(trained: Recommender) -> None:
    assert trained.recommend([]).table.columns == COLUMNS
    assert trained.recommend([]).table.schema == trained.recommend([A]).table.schema
    assert len(trained.recommend(pl.Series([], dtype=pl.Int64))) == 0


@pytest.mark.parametrize(
    ("who", "message"),
    [
        ("100", "as a list of ids, not as the single value '100'"),
        (100, "as a list of ids, not as the single value 100"),
        ([A, ["i03"]], "either ids of users or lists of items"),
        ([["i03"], "i04"], "either ids of users or lists of items"),
        ([999_999], "user 999999 is not in the dataset; check the id"),
        (["zoe", "yan"], "user 'zoe' is not in the dataset, nor is any other of the 2 given"),
        (pl.DataFrame({"user": [1]}), "no column that is plainly the item"),
    ],
)
def test_who_cannot_be_meant_is_refused(trained: Recommender, who, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trained.recommend(who)


# ------------------------------------------------------------------------------ the less usual user


def test_unknown_items_are_skipped_and_counted(trained: Recommender) -> None:
    found = trained.recommend([["nope", "i03", "i04"], ["i10", None, 7]], k=3)
    assert found.notes == ("skipped 3 events with items the model does not know",)
    plain = trained.recommend([["i03", "i04"], ["i10"]], k=3)
    assert found.table.equals(plain.table)


def test_who_has_no_known_item_gets_what_is_popular(
    trained: Recommender, store: SequenceStore
) -> None:
    found = trained.recommend([["nope"], ["i03"], []], k=4)
    by_count = np.argsort(-store.popularity()[1:], kind="stable")[:4] + 1
    for row in (0, 2):
        assert items(found, row) == store.catalogue.ids_of(by_count).to_list()
    sources = found.table.group_by("user", maintain_order=True).agg(pl.col("source").unique())
    assert sources["source"].to_list() == [["cold-start"], ["model"], ["cold-start"]]
    assert found.table["score"][0] == store.popularity().max()
    assert "2 without any known item got the most popular items instead" in found.notes


def test_one_unknown_user_among_others_is_told(trained: Recommender) -> None:
    found = trained.recommend([A, 999_999, B], k=2)
    assert found.table["user"].to_list() == [A, A, 999_999, 999_999, B, B]
    assert items(found, A) == items(trained.recommend([A], k=2), A)
    assert set(found.table.filter(pl.col("user") == 999_999)["source"]) == {"cold-start"}
    assert any("1 of the requested users are not in the dataset" in note for note in found.notes)
    named = trained.recommend([str(A), "zoe"], k=1)
    assert named.table["user"].to_list() == [str(A), "zoe"]


def test_what_was_seen_is_hidden_unless_asked_for(trained: Recommender) -> None:
    seen = ["i03", "i04", "i05"]
    hidden = trained.recommend([seen], k=N_ITEMS)
    assert len(hidden) == N_ITEMS - 3
    assert not set(seen) & set(hidden.table["item"])
    shown = trained.recommend([seen], k=N_ITEMS, seen="keep")
    assert len(shown) == N_ITEMS
    assert set(shown.table["item"]) == {f"i{index:02d}" for index in range(N_ITEMS)}
    assert shown.table["score"].is_finite().all()


def test_more_than_there_is(trained: Recommender) -> None:
    everything = [f"i{index:02d}" for index in range(N_ITEMS)]
    found = trained.recommend([["i03"], everything], k=10**12)
    assert len(items(found, 0)) == N_ITEMS - 1
    assert items(found, 1) == []
    assert found.table["rank"].to_list() == list(range(1, N_ITEMS))
    with pytest.raises(InputError, match="k must be at least 1, not 0"):
        trained.recommend([["i03"]], k=0)


def test_a_batch_is_its_users(trained: Recommender, store: SequenceStore) -> None:
    together = trained.recommend(k=5).table
    for user in store.users.ids.to_list()[:12]:
        alone = trained.recommend([user], k=5).table
        mates = together.filter(pl.col("user") == user)
        assert mates["item"].equals(alone["item"])
        assert np.allclose(mates["score"], alone["score"], atol=1e-5)


def test_titles_stand_beside_their_items(trained: Recommender) -> None:
    rows = trained.recommend([["i14"]], k=N_ITEMS).to_dicts()
    titles = {row["item"]: row["title"] for row in rows}
    assert titles["i00"] == "[REC] (2007)"
    assert titles["i07"] == "Film 7"
    assert titles["i15"] is None  # the items file lacks it


def test_frames_out(trained: Recommender) -> None:
    found = trained.recommend([A], k=3)
    assert isinstance(found.to_pandas(), pd.DataFrame)
    assert list(found.to_pandas()["item"]) == found.to_polars()["item"].to_list()
    assert len(found.to_dicts()) == len(found) == 3


# -------------------------------------------------------------------- evaluation and recommendation


@pytest.mark.parametrize("part", ["test", "valid"])
@pytest.mark.parametrize("seen", ["hide", "keep"])
def test_the_rank_is_the_place_in_the_list(
    trained: Recommender, store: SequenceStore, part: str, seen: str
) -> None:
    """Metrics and users see one ranking."""
    _, ranks = trained.evaluate_users(split=part, seen=seen)
    known = {"test": -1, "valid": -2}[part]
    histories = [history(store, user)[:known] for user in ranks["user"]]
    assert [len(row) for row in histories] == ranks["history_length"].to_list()
    found = trained.recommend(histories, k=N_ITEMS, seen=seen)
    places = ranks.with_row_index("row").join(
        found.table.rename({"user": "row", "rank": "place"}).cast({"row": pl.UInt32}),
        left_on=["row", "target"],
        right_on=["row", "item"],
    )
    assert len(places) == len(ranks)
    assert (places["rank"] + 1 == places["place"]).all()


def test_max_length_reads_the_newest_and_hides_all() -> None:
    found = Recommender(**SMALL | {"max_length": 2, "epochs": 1}).fit(cycle_events())
    long, short = ["i01", "i02", "i03", "i04"], ["i03", "i04"]
    of_long, of_short = (found.recommend([row], k=N_ITEMS).table for row in (long, short))
    assert not {"i01", "i02"} & set(of_long["item"])
    kept = of_short.filter(~pl.col("item").is_in(["i01", "i02"]))
    assert kept["item"].equals(of_long["item"])
    assert kept["score"].equals(of_long["score"])


def test_another_dataset_is_not_evaluated(trained: Recommender, tmp_path: Path) -> None:
    other = linrec.prepare(cycle_events(seed=9), tmp_path / "other")
    with pytest.raises(InputError, match=r"other is not the dataset of this run .*its own dataset"):
        trained.evaluate(other)
    with pytest.raises(InputError, match="the given data is not the dataset of this run"):
        trained.evaluate(cycle_events(seed=9))


def test_the_same_events_from_elsewhere_are_the_same_dataset(trained: Recommender) -> None:
    again = linrec.prepare(cycle_events(), items=cycle_items())
    assert trained.evaluate(again).to_dict() == trained.evaluate().to_dict()


def test_a_newer_dataset_is_matched_by_id(trained: Recommender, tmp_path: Path) -> None:
    """New items come first in it, so that no index means what it meant."""
    newer = pl.concat(
        [
            pl.DataFrame({"user": [7, 7, 7], "item": ["n1", "i08", "i09"], "time": [-3, -2, -1]}),
            pl.DataFrame({"user": [8, 8], "item": ["n1", "n2"], "time": [-3, -2]}),
            cycle_events().reverse(),
        ]
    )
    data = linrec.prepare(newer, tmp_path / "newer")
    found = trained.recommend([7, A, 8], k=3, data=data)
    assert items(found, 7) == items(trained.recommend([["i08", "i09"]], k=3), 0)
    assert items(found, A) == items(trained.recommend([A], k=3), A)
    assert set(found.table.filter(pl.col("user") == 8)["source"]) == {"cold-start"}
    assert "skipped 3 events with items the model does not know" in found.notes
    by_path = trained.recommend([7, A, 8], k=3, data=str(tmp_path / "newer"))
    assert by_path.table.equals(found.table)
    assert len(trained.recommend([], data=data)) == 0


# -------------------------------------------------------------------------------- the object itself


def test_before_it_is_trained_it_says_so(tmp_path: Path) -> None:
    fresh = Recommender()
    for use in (
        lambda: fresh.recommend([["i03"]]),
        fresh.evaluate,
        lambda: fresh.save(tmp_path / "run"),
        lambda: fresh.model,
    ):
        with pytest.raises(InputError, match="not trained yet; call fit"):
            use()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["polars", "pandas", "file", "folder", "store"])
def test_fit_takes_data_in_any_form(kind: str, dataset: Path, store, tmp_path: Path) -> None:
    events = cycle_events()
    events.write_csv(tmp_path / "events.csv")
    data = {
        "polars": events,
        "pandas": events.to_pandas(),
        "file": tmp_path / "events.csv",
        "folder": str(dataset),
        "store": store,
    }[kind]
    found = Recommender(**SMALL | {"epochs": 1}).fit(data)
    assert found.store.fingerprint == store.fingerprint
    assert len(found.recommend([A], k=3)) == 3


def test_a_dataset_that_went_away_is_named(run: Path, tmp_path: Path) -> None:
    found = Recommender(**SMALL | {"epochs": 1}).fit(cycle_events(), tmp_path / "run")
    assert found.evaluate()["ndcg@10"] >= 0
    with pytest.raises(InputError, match="was only in memory; give it as data="):
        linrec.load(tmp_path / "run").evaluate()
    moved = linrec.load(run)
    moved.description.dataset["path"] = str(tmp_path / "gone")
    with pytest.raises(InputError, match=r"no longer at .*gone; give it as data="):
        moved.recommend([A])


def test_integer_items_and_text_users() -> None:
    events = cycle_events().select(
        pl.format("u{}", "user").alias("user"), pl.col("item").str.slice(1).cast(pl.Int64), "time"
    )
    found = Recommender(**SMALL).fit(events)
    assert found.recommend([[3, 4, 5]], k=1).table["item"].to_list() == [6]
    assert found.recommend([["3", "4", "5"]], k=1).table["item"].to_list() == [6]
    assert found.recommend([np.array([3, 4, 5])], k=1).table["item"].to_list() == [6]
    assert found.recommend([f"u{A}"], k=1).table["user"].to_list() == [f"u{A}"]
