"""Context columns: kept beside the items through filters, sorting and the disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from linrec.data.dataset.context import given_codes
from linrec.data.dataset.item_features import FIRST, MISSING, UNKNOWN
from linrec.data.dataset.statistics import statistics
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.types import InputError

EVENTS = pl.DataFrame(
    {
        "user": [1, 1, 2, 2, 2, 1],
        "item": ["a", "b", "a", "c", "b", "c"],
        "time": [10.0, 5.0, 3.0, 4.0, 9.0, 100.0],
        "type": ["view", "buy", None, "view", "buy", "view"],
        "price": [1.5, 2.0, 3.25, None, 7.0, 9.0],
        "rating": [1, 2, 3, 4, 5, 5],
        "mobile": [True, False, True, True, False, True],
    }
)


def rows(store: SequenceStore) -> list[tuple[object, ...]]:
    """item and context of each event, as the source had them."""
    items = store.catalogue.ids_of(store.items).to_list()
    return list(zip(items, *(column.texts().to_list() for column in store.context), strict=True))


def test_context_follows_its_event_through_sorting_and_filters() -> None:
    store = prepare(EVENTS, context="type,price", rating_at_least=2)
    kept = EVENTS.filter(pl.col("rating") >= 2).sort("user", "time")
    assert rows(store) == kept.select("item", "type", "price").rows()


def test_kinds_are_guessed_as_those_of_items_or_given() -> None:
    store = prepare(EVENTS, context="type, price,rating,mobile")
    kinds = {column.name: column.kind for column in store.context}
    assert kinds == {
        "type": "categorical", "price": "numeric", "rating": "categorical", "mobile": "categorical",
    }  # fmt: skip
    assert prepare(EVENTS, context=("rating=numeric",)).context[0].kind == "numeric"
    shown = dict(statistics(store))["context of events"]
    assert shown.startswith("type (categorical, 2 values), price (numeric)")


def test_a_text_file_gives_what_a_frame_does(tmp_path: Path) -> None:
    EVENTS.write_csv(tmp_path / "events.csv")
    frame, text = (
        prepare(x, context="type,price,rating,mobile") for x in (EVENTS, tmp_path / "events.csv")
    )
    assert rows(frame) == rows(text)
    assert frame.fingerprint == text.fingerprint


def test_files_of_different_types_are_one_column(tmp_path: Path) -> None:
    EVENTS[:3].write_parquet(tmp_path / "a.parquet")
    EVENTS[3:].with_columns(pl.col("rating").cast(pl.Float64)).write_parquet(tmp_path / "b.parquet")
    assert rows(prepare(tmp_path, context="rating=categorical")) == rows(
        prepare(EVENTS, context="rating")
    )


def test_bad_rows_take_their_context_with_them() -> None:
    frame = EVENTS.with_columns(item=pl.Series(["a", None, "a", "c", "b", "c"]))
    store = prepare(frame, context="price", skip_bad_rows=True)
    assert [price for _, price in rows(store)] == [1.5, 9.0, 3.25, None, 7.0]


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    made = prepare(EVENTS, tmp_path / "data", context="type,price", overwrite=True)
    opened = SequenceStore.open(tmp_path / "data")
    assert rows(opened) == rows(made) == rows(prepare(EVENTS, context="type,price"))
    assert opened.fingerprint == made.fingerprint
    assert isinstance(opened.context[1].values, np.memmap)


def test_the_fingerprint_covers_the_context() -> None:
    changed = EVENTS.with_columns(price=pl.col("price") + 1)
    found = {prepare(x, context="type,price").fingerprint for x in (EVENTS, changed)}
    found |= {prepare(EVENTS, context=names).fingerprint for names in (None, "type", "price")}
    assert len(found) == 5


def test_a_dataset_of_the_version_before_opens(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    prepare(EVENTS, folder)
    description = json.loads((folder / "dataset.json").read_text())
    del description["context"]
    (folder / "dataset.json").write_text(json.dumps(description | {"format_version": 2}))
    assert SequenceStore.open(folder).context == ()


@pytest.mark.parametrize("name", ["context-0.npy", "context-0.parquet", "context-1.npy"])
def test_damage_is_found(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "data"
    prepare(EVENTS, folder, context="type,price")
    if name == "context-1.npy":
        np.save(folder / name, np.arange(6.0))
    else:
        (folder / name).unlink()
    with pytest.raises(InputError, match="prepare"):
        SequenceStore.open(folder)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ("colour", "no column 'colour'"),
        ("type=text", "NAME or NAME=KIND"),
        ("type,,price", "NAME or NAME=KIND"),
        ("type=numeric", "'view' is not a number"),
        ("empty", "holds no value"),
        ("list", "one category or number"),
    ],
)
def test_wrong_columns_are_refused(context: str, message: str) -> None:
    frame = EVENTS.with_columns(empty=pl.lit(None, pl.String), list=pl.lit([1, 2]))
    with pytest.raises(InputError, match=message):
        prepare(frame, context=context)


def test_codes_are_those_of_item_features() -> None:
    store = prepare(EVENTS, context="type,price")
    fields = [column.learn(slice(None)) for column in store.context]
    codes = store.read_by(fields).sequences().context
    assert codes is not None
    assert codes[:, 0].tolist() == [FIRST, FIRST + 1, FIRST + 1, MISSING, FIRST + 1, FIRST]
    for row, (_, kind, price) in enumerate(rows(store)):
        assert given_codes(fields, {"type": kind, "price": price}) == codes[row].tolist()
    assert given_codes(fields, {"type": "return"}) == [UNKNOWN, MISSING]
    assert given_codes(fields, None) == [MISSING, MISSING]
    assert given_codes(fields, {"price": "7.0"})[1] == given_codes(fields, {"price": 7})[1]
    assert store.sequences().context is None


def test_whole_numbers_and_truth_are_spelt_as_prepare_does() -> None:
    store = prepare(EVENTS, context="rating,mobile")
    fields = [column.learn(slice(None)) for column in store.context]
    assert given_codes(fields, {"rating": 5.0, "mobile": True}) == given_codes(
        fields, {"rating": "5", "mobile": "true"}
    )
    assert given_codes(fields, {"rating": 5})[0] == FIRST  # the only rating of two events


def test_a_field_that_the_data_lack_is_missing() -> None:
    field = prepare(EVENTS, context="type").context[0].learn(slice(None))
    codes = prepare(EVENTS).read_by([field]).sequences().context
    assert codes is not None
    assert (codes == MISSING).all()
