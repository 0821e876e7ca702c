from __future__ import annotations

from datetime import date
from pathlib import Path

import polars as pl
import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.types import InputError
from tests.data.conftest import Write

EVENTS = pl.DataFrame({"user": [1, 1, 2], "item_id": [10, 20, 30], "time": [1, 2, 3]})

MOVIES = (
    b"20::Le Samoura\xef (1967)::Crime|Drama\n10::Alien (1979)::Horror\n"
    b"30::Heat\n10::Again (1980)::Other\n"
)
ITEMS = (
    "item_id:token\tmovie_title:token_seq\trelease_year:token\tgenre:token_seq\tprice:float\t"
    "vector:float_seq\n"
    "10\tThe Alien\t1979\tHorror  Space\t9.5\t1 2\n20\tHeat\t\t\t\t3 4\n"
)


def kinds(store: SequenceStore) -> dict[str, str]:
    return {feature.name: feature.kind for feature in store.features}


def with_items(items: object, **options: object) -> SequenceStore:
    return prepare(EVENTS, items=items, **options)


def test_atomic_types_decide(write: Write) -> None:
    write("x.item", ITEMS)
    inter = "user_id:token\titem_id:token\ttimestamp:float\n1\t10\t1\n1\t20\t2\n2\t30\t3\n"
    store = prepare(write("x.inter", inter))
    assert kinds(store) == {
        "title": "text",
        "release_year": "categorical",
        "genre": "multi",
        "price": "numeric",
    }
    assert store.item_table.rows() == [
        (10, "The Alien", "1979", ["Horror", "Space"], 9.5),
        (20, "Heat", None, None, None),
        (30, None, None, None, None),
    ]
    assert store.summary["items_without_features"] == 1
    notes = " ".join(store.summary["notes"])
    assert "1 of 3 items are not in" in notes
    assert "'vector'" in notes


def test_movies_beside_the_ratings(write: Write) -> None:
    write("movies.dat", MOVIES)
    store = prepare(write("ratings.dat", "1::10::5::1\n1::20::5::2\n2::30::5::3\n"))
    assert kinds(store) == {"title": "text", "year": "numeric", "genres": "multi"}
    assert store.item_table.rows() == [
        (10, "Alien", 1979.0, ["Horror"]),
        (20, "Le Samouraï", 1967.0, ["Crime", "Drama"]),
        (30, "Heat", None, None),
    ]
    assert "1 rows of" in " ".join(store.summary["notes"])


def test_kinds_are_inferred_from_a_table_without_types(write: Write) -> None:
    rows = "".join(
        f"{n},Name {n},{n / 7:.3f},{n % 4},c{n % 3},a{n % 2}|b,{1900 + n},text {n} x\n"
        for n in range(100)
    )
    path = write("items.csv", "item_id,name,price,size,colour,tags,year,blurb\n" + rows)
    store = with_items(path)
    assert kinds(store) == {
        "title": "text",
        "price": "numeric",
        "size": "categorical",
        "colour": "categorical",
        "tags": "multi",
        "year": "numeric",
        "blurb": "text",
    }
    assert store.item_table.rows()[0] == (
        (10, "Name 10", 1.429, "2", "c1", ["a0", "b"], 1910.0, "text 10 x")
    )


def test_kinds_of_a_typed_table() -> None:
    items = pl.DataFrame(
        {
            "item_id": ["10", "20", "30"],
            "flag": [True, False, None],
            "size": [1, 2, 3],
            "weight": [1.0, 2.5, None],
            "added": [date(1970, 1, 2)] * 3,
            "tags": [["a", None], [], None],
            "group": pl.Series(["x", "y", "x"], dtype=pl.Categorical),
            "nothing": [None, None, None],
            "nested": [{"a": 1}] * 3,
        }
    )
    store = with_items(items)
    assert kinds(store) == {
        "flag": "categorical",
        "size": "categorical",
        "weight": "numeric",
        "added": "numeric",
        "tags": "multi",
        "group": "categorical",
    }
    assert store.item_table.rows()[0] == (10, "true", "1", 1.0, 86400.0, ["a"], "x")
    assert sum("left out" in note for note in store.summary["notes"]) == 2


def test_ids_of_other_things_are_categories() -> None:
    items = pl.DataFrame(
        {
            "item_id": range(100),
            "brand_id": range(100),
            "shopId": [f"s{n}" for n in range(100)],
            "maker_id": [str(n) for n in range(100)],
            "humid": range(100),
        }
    )
    assert kinds(with_items(items)) == {
        "brand_id": "categorical",
        "shopId": "categorical",
        "maker_id": "categorical",
        "humid": "numeric",
    }


def test_kinds_can_be_set() -> None:
    items = pl.DataFrame(
        {"item_id": [10, 20], "year": [1995.0, 1996.0], "tags": ["a, b", "c"], "code": ["1", "2"]}
    )
    chosen = {"year": "categorical", "tags": "multi", "code": "numeric"}
    store = with_items(items, feature_kinds=chosen)
    assert kinds(store) == chosen
    assert store.item_table.rows()[0] == (10, "1995", ["a", "b"], 1.0)


def test_titles_keep_their_position() -> None:
    items = pl.DataFrame({"item_id": [10], "name": ["N"], "title": ["T"], "description": ["D"]})
    store = with_items(items)
    assert store.item_table.columns == ["item", "name", "title", "description"]
    assert store.item_table["title"][0] == "T"
    assert set(kinds(store).values()) == {"text"}


def test_the_id_column_may_have_another_usual_name() -> None:
    store = with_items(pl.DataFrame({"productId": ["20", "10"], "colour": ["red", "blue"]}))
    assert store.item_table["colour"].to_list() == ["blue", "red", None]


@pytest.mark.parametrize(
    ("items", "options", "sentence"),
    [
        (pl.DataFrame({"name": ["a"]}), {}, "no column 'item_id'.*'name'"),
        (pl.DataFrame({"item_id": [10, None], "x": [1, 2]}), {}, "row 2.*id is missing"),
        (pl.DataFrame({"item_id": [10], "item": [1]}), {}, "rename it"),
        (
            pl.DataFrame({"item_id": [10], "x": ["a"]}),
            {"feature_kinds": {"y": "text"}},
            "no feature 'y'",
        ),
        (
            pl.DataFrame({"item_id": [10], "x": ["a"]}),
            {"feature_kinds": {"x": "numeric"}},
            "'a' is not a number",
        ),
        (None, {"feature_kinds": {"x": "numeric"}}, "set items="),
        (17, {}, "int"),
    ],
)
def test_items_that_do_not_fit(items: object, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        with_items(items, **options)


def test_items_files_that_cannot_be_read(write: Write, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        with_items(tmp_path / "nowhere.csv")
    write("two/a.csv", "item_id\n1\n")
    with pytest.raises(InputError, match="one items file"):
        with_items(write("two/b.csv", "item_id\n2\n").parent)
    with pytest.raises(InputError, match="name:type"):
        with_items(write("broken.item", "item_id\n1\n"))
