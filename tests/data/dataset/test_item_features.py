"""Features as codes: vocabularies worked by hand, and what holds of every table."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from linrec.data.dataset.feature import Feature, FeatureKind
from linrec.data.dataset.item_features import (
    BUCKETS,
    FIRST,
    ITEM,
    MAX_VALUES,
    MISSING,
    NOTHING,
    UNKNOWN,
    Field,
    ItemFeatures,
    choose_fields,
    learn_field,
)
from linrec.data.preparing.prepare import prepare

INF, NAN = float("inf"), float("nan")


def learned(values: list[object] | pl.Series, kind: FeatureKind) -> tuple[Field, pl.DataFrame]:
    """The field of one column, and the table it stands in."""
    column = values if isinstance(values, pl.Series) else pl.Series(values, strict=False)
    table = pl.DataFrame({ITEM: np.arange(len(column)), "x": column})
    return learn_field(table, Feature("x", kind)), table


def codes_of(values: list[object] | pl.Series, kind: FeatureKind) -> list[int]:
    """Without the row of PAD, where each item has one code."""
    field, table = learned(values, kind)
    codes = field.codes(table)
    assert codes.shape == (len(table) + 1, 1)
    return codes[1:, 0].tolist()


# -------------------------------------------------------------------------------------- by hand


def test_categories_in_the_order_of_the_alphabet() -> None:
    field, table = learned(["red", "blue", None, "red", "blue", "green"], "categorical")
    assert field == Field("x", "categorical", values=("blue", "red"))
    assert field.size == FIRST + 2
    blue, red = FIRST, FIRST + 1
    assert field.codes(table)[:, 0].tolist() == [NOTHING, red, blue, MISSING, red, blue, UNKNOWN]


def test_several_categories_an_item() -> None:
    rows = [["b", "a"], ["a"], None, [], ["b", "rare", "once"], ["b", "b", None], [None]]
    field, table = learned(pl.Series(rows, dtype=pl.List(pl.String)), "multi")
    assert field == Field("x", "multi", values=("a", "b"))
    a, b = FIRST, FIRST + 1
    assert field.codes(table).tolist() == [
        [NOTHING, NOTHING],
        [a, b],
        [a, NOTHING],
        [MISSING, NOTHING],
        [MISSING, NOTHING],
        [UNKNOWN, b],  # two values that are not known are unknown once
        [b, NOTHING],
        [MISSING, NOTHING],
    ]


def test_a_value_twice_in_one_item_is_still_of_one_item() -> None:
    field, _ = learned(pl.Series([["a", "a"], ["b"], ["b"]], dtype=pl.List(pl.String)), "multi")
    assert field.values == ("b",)


def test_each_id_is_a_code() -> None:
    (field,) = choose_fields(pl.DataFrame({ITEM: ["p", "q", "r"]}), [], None)
    assert field == Field(ITEM, "id", items=3)
    features = ItemFeatures.of(pl.DataFrame({ITEM: ["p", "q", "r"]}), [field])
    assert features.n_items == 3
    assert features.codes[0].tolist() == [[NOTHING], [FIRST], [FIRST + 1], [FIRST + 2]]
    assert field.size == FIRST + 3
    plain = ItemFeatures.ids(3)
    assert plain.fields == features.fields
    assert np.array_equal(plain.codes[0], features.codes[0])


def test_numbers_fall_into_buckets_by_rank() -> None:
    bounds = (1.5, 10.0)
    field = Field("x", "numeric", bounds=bounds)
    table = pl.DataFrame({"x": [1.0, 1.5, 9.9, 10.0, None, NAN, INF, -INF]})
    low, middle, high = FIRST, FIRST + 1, FIRST + 2
    assert field.size == FIRST + 3
    assert field.codes(table)[:, 0].tolist() == [
        *(NOTHING, low, middle, middle, high),
        *(MISSING, MISSING, high, low),
    ]


def test_an_item_keeps_no_more_values_than_fit() -> None:
    tags = [f"t{index:03d}" for index in range(MAX_VALUES + 10)]
    field, table = learned(pl.Series([tags, tags, tags[:2]]), "multi")
    codes = field.codes(table)
    assert codes.shape == (4, MAX_VALUES)
    assert codes[3].tolist() == [FIRST, FIRST + 1] + [NOTHING] * (MAX_VALUES - 2)


# --------------------------------------------------------------------- missing is not unknown


def test_a_stored_vocabulary_tells_missing_from_unknown() -> None:
    field = Field("x", "categorical", values=("a",))
    table = pl.DataFrame({"x": ["a", "new", None]})
    assert field.codes(table)[1:, 0].tolist() == [FIRST, UNKNOWN, MISSING]
    several = replace(field, kind="multi")
    lists = pl.DataFrame({"x": pl.Series([["a", "new"], ["new"], [], None, [None]])})
    assert several.codes(lists)[1:].tolist() == [
        [UNKNOWN, FIRST],
        *([UNKNOWN, NOTHING], [MISSING, NOTHING], [MISSING, NOTHING], [MISSING, NOTHING]),
    ]


def test_what_one_item_alone_has_is_unknown() -> None:
    assert codes_of(["a", "b", "c"], "categorical") == [UNKNOWN] * 3


@pytest.mark.parametrize("kind", ["categorical", "numeric"])
def test_a_column_of_nothing_is_missing(kind: FeatureKind) -> None:
    dtype = pl.Float64 if kind == "numeric" else pl.String
    assert codes_of(pl.Series([None, None], dtype=dtype), kind) == [MISSING, MISSING]
    field, table = learned(pl.Series([None, []], dtype=pl.List(pl.String)), "multi")
    assert field.codes(table).tolist() == [[NOTHING], [MISSING], [MISSING]]


def test_an_item_without_a_row_of_features() -> None:
    events = pl.DataFrame({"user": [1, 1, 2, 2], "item_id": [10, 20, 30, 10], "time": [1, 2, 3, 4]})
    items = pl.DataFrame(
        {"item_id": [10, 30], "tags": [["a"], ["a", "b"]], "kind": ["k", "k"], "price": [1.5, 2.5]}
    )
    store = prepare(events, items=items)
    fields = choose_fields(store.item_table, store.features, None)
    assert [field.name for field in fields] == ["tags", "kind", "price"]
    features = ItemFeatures.of(store.item_table, fields)
    row = store.catalogue.index_of([20])[0]
    assert [codes[row, 0] for codes in features.codes] == [MISSING] * 3


def test_no_items_leave_the_row_of_padding() -> None:
    for kind, dtype in (("categorical", pl.String), ("numeric", pl.Float64)):
        field, table = learned(pl.Series([], dtype=dtype), kind)
        assert field.codes(table).tolist() == [[NOTHING]]


# -------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("scale", ["even", "skewed"])
def test_buckets_hold_about_as_many_items_each(scale: str) -> None:
    values = np.random.default_rng(0).permutation(1_000).astype(float)
    codes = codes_of(pl.Series(np.exp(values / 50) if scale == "skewed" else values), "numeric")
    held = Counter(codes)
    assert sorted(held) == list(range(FIRST, FIRST + BUCKETS))
    assert set(held.values()) == {1_000 // BUCKETS}


def test_a_bucket_holds_what_is_close() -> None:
    values = np.random.default_rng(1).normal(size=200)
    codes = np.array(codes_of(pl.Series(values), "numeric"))
    assert (np.diff(codes[np.argsort(values)]) >= 0).all()


def test_a_constant_has_one_bucket() -> None:
    field, table = learned([7.0, 7.0, None, 7.0], "numeric")
    assert field.bounds == ()
    assert field.codes(table)[1:, 0].tolist() == [FIRST, FIRST, MISSING, FIRST]


def test_the_infinite_belong_to_the_outer_buckets() -> None:
    codes = codes_of([1.0, 2.0, 3.0, INF, -INF, NAN], "numeric")
    assert codes[3] == codes[2] == max(codes)
    assert codes[4] == codes[0] == FIRST
    assert codes[5] == MISSING
    assert codes_of([INF, -INF], "numeric") == [FIRST, FIRST]


def test_few_different_numbers_are_kept_apart() -> None:
    values = [1, 2, 3] * 20
    codes = codes_of(values, "numeric")
    assert len(set(codes)) == 3
    assert codes == codes[:3] * 20
    assert codes[0] < codes[1] < codes[2]


def test_whole_numbers_are_numbers() -> None:
    whole = list(range(100))
    assert codes_of(whole, "numeric") == codes_of([float(n) for n in whole], "numeric")


# ----------------------------------------------------------------------------- whatever the table

TEXT = st.one_of(st.none(), st.sampled_from("abcdefg"), st.text(max_size=3))
NUMBER = st.one_of(st.none(), st.floats(), st.integers(-50, 50).map(float))
LIST = st.one_of(st.none(), st.lists(TEXT, max_size=4))
COLUMNS = st.one_of(
    st.tuples(st.just("categorical"), st.lists(TEXT, max_size=30)),
    st.tuples(st.just("multi"), st.lists(LIST, max_size=20)),
    st.tuples(st.just("numeric"), st.lists(NUMBER, max_size=60)),
)
DTYPES = {"categorical": pl.String, "multi": pl.List(pl.String), "numeric": pl.Float64}


def drawn(column: tuple[FeatureKind, list[object]]) -> tuple[Field, pl.DataFrame]:
    kind, values = column
    return learned(pl.Series(values, dtype=DTYPES[kind]), kind)


@given(column=COLUMNS)
def test_every_code_is_in_the_vocabulary(column) -> None:
    field, table = drawn(column)
    codes = field.codes(table)
    assert codes.dtype == np.int32
    assert len(codes) == len(table) + 1
    assert (codes[0] == NOTHING).all()
    assert (codes[1:, 0] > NOTHING).all()  # every item has a first value, be it that it has none
    assert (codes >= 0).all()
    assert (codes < field.size).all()


@given(column=COLUMNS)
def test_a_stored_field_gives_the_same_codes(column) -> None:
    field, table = drawn(column)
    stored = json.loads(json.dumps(asdict(field)))
    again = TypeAdapter(Field).validate_python(stored)
    assert again == field
    assert np.array_equal(again.codes(table), field.codes(table))


def test_a_stored_field_with_more_in_it_is_refused() -> None:
    with pytest.raises(ValidationError, match="colour"):
        TypeAdapter(Field).validate_python({"name": "x", "kind": "id", "colour": 1})


@given(column=COLUMNS, seed=st.integers(0, 2**31))
def test_the_order_of_the_items_does_not_matter(column, seed) -> None:
    field, table = drawn(column)
    order = np.random.default_rng(seed).permutation(len(table))
    shuffled = table[order]
    again = learn_field(shuffled, Feature("x", column[0]))
    assert again == field
    assert np.array_equal(again.codes(shuffled)[1:], field.codes(table)[1:][order])


@settings(max_examples=50)
@given(rows=st.lists(st.lists(st.sampled_from("abcd"), max_size=3), min_size=1, max_size=20))
def test_codes_decode_to_the_values(rows) -> None:
    field, table = learned(pl.Series(rows, dtype=pl.List(pl.String)), "multi")
    known = set(field.values)
    for codes, values in zip(field.codes(table)[1:], rows, strict=True):
        assert decoded(field, codes) == set(values) & known
        assert (MISSING in codes) == (not values)
        assert (UNKNOWN in codes) == bool(set(values) - known)


def decoded(field: Field, codes: NDArray[np.int64]) -> set[str]:
    return {field.values[code - FIRST] for code in codes if code >= FIRST}


# -------------------------------------------------------------------------------------- real data


def test_ml_1m(shared_data: Path) -> None:
    source = shared_data / "ml-1m" / "ml-1m.item"
    if not source.is_file():
        pytest.skip(f"the real data is not here: {source} does not exist")
    films = pl.read_csv(source, separator="\t", quote_char=None)["item_id:token"]
    # one event an item: the features need no more
    events = pl.DataFrame({"user_id": 1, "item_id": films, "timestamp": np.arange(len(films))})
    store = prepare(events, items=source)
    genre, year = choose_fields(store.item_table, store.features, ["genre", "year"])
    assert len(genre.values) == 18
    assert {"Drama", "Film-Noir", "Children's"} <= set(genre.values)
    assert (year.name, year.kind) == ("release_year", "categorical")
    expected = store.item_table["genre"].to_list()
    for codes, genres in zip(genre.codes(store.item_table)[1:], expected, strict=True):
        assert decoded(genre, codes) == set(genres)
        assert (codes < FIRST).sum() == (codes == NOTHING).sum()
    toy_story = int(store.catalogue.index_of([1])[0])
    values = decoded(genre, genre.codes(store.item_table)[toy_story])
    assert values == {"Animation", "Children's", "Comedy"}
