"""An array in parts is read as the array that it is."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linrec.data.dataset.chunked import Chunked, joined, parts_of, update

LENGTHS = st.lists(st.integers(0, 5), min_size=2, max_size=6).filter(lambda found: sum(found) > 0)


def parts(lengths: list[int]) -> tuple[np.ndarray[Any, Any], Any]:
    whole = np.random.default_rng(sum(lengths)).integers(0, 99, sum(lengths)).astype(np.int32)
    return whole, joined(np.split(whole, np.cumsum(lengths)[:-1]))


@given(LENGTHS, st.data())
def test_ranges_positions_and_masks(lengths: list[int], data: st.DataObject) -> None:
    whole, array = parts(lengths)
    assert isinstance(array, Chunked)
    assert (len(array), array.shape, array.dtype) == (len(whole), whole.shape, whole.dtype)
    start, stop = (data.draw(st.integers(-len(whole) - 2, len(whole) + 2)) for _ in range(2))
    for step in (None, 2, -1):
        np.testing.assert_array_equal(array[start:stop:step], whole[start:stop:step])
    index = np.array(data.draw(st.lists(st.integers(-len(whole), len(whole) - 1))), np.int64)
    for shape in ((-1,), (1, -1)):
        found, expected = (each[index.reshape(shape)] for each in (array, whole))
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
    assert array[int(stop) % len(whole)] == whole[int(stop) % len(whole)]
    np.testing.assert_array_equal(array[whole > 40], whole[whole > 40])
    np.testing.assert_array_equal(np.asarray(array, np.int64), whole)
    assert (array.min(), array.max()) == (whole.min(), whole.max())


@given(LENGTHS)
def test_a_hash_does_not_tell_how_it_is_divided(lengths: list[int]) -> None:
    whole, array = parts(lengths)
    one, other = hashlib.sha256(), hashlib.sha256()
    update(one, array, "<i8")
    update(other, whole, "<i8")
    assert one.digest() == other.digest()
    assert sum(len(part) for part in parts_of(array)) == len(whole)


def test_a_range_of_one_part_is_no_copy() -> None:
    whole, array = parts([4, 4])
    assert np.shares_memory(array[5:7], whole)
    assert joined([whole]) is whole


@pytest.mark.parametrize("where", [8, -9, np.array([0, 8]), np.ones(7, np.bool_)])
def test_what_is_outside_is_refused(where: Any) -> None:
    with pytest.raises(IndexError):
        parts([4, 4])[1][where]
