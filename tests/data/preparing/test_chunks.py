"""A log read a few rows at a time, and sorted a few users at a time, is the same dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linrec.data.preparing import filtering
from linrec.data.preparing.filtering import first_of_each, in_order
from linrec.data.preparing.prepare import prepare
from linrec.data.reading import chunks
from linrec.data.reading.numbering import Numbering
from linrec.types import EventLog, InputError

FILES = ("items.npy", "offsets.npy", "times.npy", "users.parquet", "items.parquet", "dataset.json")


def log(rows: int = 200, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "user": [f"u{n}" for n in rng.integers(0, 17, rows)],
            "item": rng.integers(0, 29, rows),
            "time": rng.integers(0, 12, rows),  # ties, and a few exact duplicates
            "rating": rng.integers(1, 6, rows),
        }
    )


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 7)
    monkeypatch.setattr(filtering, "CHUNK_EVENTS", 5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"drop_duplicates": True, "drop_repeats": True},
        {"rating_at_least": 3.0, "min_item_events": 3, "min_user_events": 4, "since": 2},
    ],
)
def test_the_same_bytes(
    tmp_path: Path, request: pytest.FixtureRequest, options: dict[str, object]
) -> None:
    path = tmp_path / "log.parquet"
    log().write_parquet(path, row_group_size=64)
    prepare(path, tmp_path / "whole", **options)
    request.getfixturevalue("few_at_a_time")
    prepare(path, tmp_path / "chunks", **options)
    for name in FILES:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "chunks" / name).read_bytes()


@pytest.mark.usefixtures("few_at_a_time")
def test_equal_times_keep_the_order_of_the_file_across_chunks() -> None:
    table = pl.DataFrame({"user": [1, 2] * 20, "item": range(40), "time": [5] * 40})
    store = prepare(table)
    assert store.catalogue.ids_of(store.sequences()[0]).to_list() == list(range(0, 40, 2))
    assert store.catalogue.ids_of(store.sequences()[1]).to_list() == list(range(1, 40, 2))


@pytest.mark.usefixtures("few_at_a_time")
def test_an_error_names_the_row_in_the_file(tmp_path: Path) -> None:
    table = log(30).with_columns(item=pl.Series([*range(20), None, *range(9)]))
    table.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(InputError, match=r"row 21, column 'item'"):
        prepare(tmp_path / "log.parquet")


@pytest.mark.usefixtures("few_at_a_time")
def test_times_as_text_are_understood_as_a_whole() -> None:
    """The first value decides how all are written, also across chunks."""
    table = log(30).with_columns(time=pl.Series(["5"] * 20 + ["2024-05-31"] * 10))
    with pytest.raises(InputError, match=r"row 21, column 'time'.*'2024-05-31' is not one"):
        prepare(table)


@pytest.mark.usefixtures("few_at_a_time")
def test_integers_beyond_64_bits_make_names_of_all() -> None:
    ids = pl.Series([1] * 10 + [2**63] * 10 + [1], dtype=pl.UInt64)
    store = prepare(pl.DataFrame({"user": ids, "item": 1, "time": range(21)}))
    assert store.users.ids.to_list() == ["1", str(2**63)]
    assert np.diff(store.offsets).tolist() == [11, 10]


@given(st.lists(st.lists(st.integers(-3, 9), max_size=6), min_size=1, max_size=5))
def test_numbers_follow_first_appearance_whatever_the_chunks(parts: list[list[int]]) -> None:
    numbering = Numbering()
    numbered = [numbering.number(pl.Series("id", part, dtype=pl.Int64)).to_list() for part in parts]
    flat = [one for part in parts for one in part]
    ids = list(dict.fromkeys(flat))
    assert numbering.ids.to_list() == ids
    assert [n for part in numbered for n in part] == [ids.index(one) for one in flat]


EVENTS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=60
)


@given(EVENTS)
def test_sorting_and_duplicates_like_python(rows: list[tuple[int, int, int]]) -> None:
    users, items, times = (np.array(column) for column in zip(*rows, strict=True))
    unordered = EventLog(
        users.astype(np.int32),
        items.astype(np.int32),
        times.astype(np.float64),
        user_ids=pl.Series(range(5)),
        item_ids=pl.Series(range(3)),
        ratings=np.arange(len(rows), dtype=np.float64),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtering, "CHUNK_EVENTS", 6)
        ordered = in_order(unordered)
        first = first_of_each(ordered)
    expected = sorted(range(len(rows)), key=lambda at: (rows[at][0], rows[at][2]))  # stable
    assert ordered.ratings is not None
    assert ordered.ratings.tolist() == expected
    assert ordered.items.tolist() == [rows[at][1] for at in expected]
    met: set[tuple[int, int, int]] = set()
    for at, is_first in zip(expected, first.tolist(), strict=True):
        assert is_first == (rows[at] not in met)
        met.add(rows[at])
