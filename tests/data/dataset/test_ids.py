from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linrec.data.dataset.ids import IdMap
from linrec.types import InputError

NUMBERS = IdMap(pl.Series([30, 10, 20]), first=1)
NAMES = IdMap(pl.Series(["30", "b", "a"]), first=0)


@pytest.mark.parametrize(
    "ids",
    [[10, 99, 30], ["10", "99", "30"], [10.0, 9.5, "30"], np.array([10, 99, 30]), (10, None, 30)],
)
def test_numbers_match_however_they_are_written(ids: list[object]) -> None:
    assert NUMBERS.index_of(ids).tolist() == [2, -1, 1]


def test_names_are_found_by_numbers_too() -> None:
    assert NAMES.index_of(["b", 30, "x"]).tolist() == [1, 0, -1]
    assert NAMES.index_of([30]).tolist() == [0]
    assert NAMES.index_of(pl.Series([30.0, 2.5])).tolist() == [0, -1]


def test_nothing_asked_and_nothing_known() -> None:
    assert NUMBERS.index_of([]).tolist() == []
    assert IdMap(pl.Series([], dtype=pl.String), first=1).index_of(["a"]).tolist() == [-1]
    assert NUMBERS.index_of([None]).tolist() == [-1]


def test_a_single_string_is_not_a_list_of_ids() -> None:
    with pytest.raises(InputError, match="as a list"):
        NAMES.index_of("30")


def test_indices_without_an_id_are_refused() -> None:
    assert NUMBERS.ids_of(np.array([1, 3])).to_list() == [30, 20]
    with pytest.raises(InputError, match="outside 1 to 3"):
        NUMBERS.ids_of(np.array([0]))


@given(st.lists(st.text(), unique=True, min_size=1), st.integers(0, 1))
def test_there_and_back(ids: list[str], first: int) -> None:
    known = IdMap(pl.Series(ids, dtype=pl.String), first)
    index = known.index_of(ids)
    assert index.tolist() == list(range(first, first + len(ids)))
    assert known.ids_of(index).to_list() == ids
