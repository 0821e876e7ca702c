from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linrec.data.preparing.filtering import filter_events
from linrec.data.preparing.options import PrepareOptions
from linrec.types import EventLog, InputError


def log(rows: list[tuple[int, int, float]], ratings: list[float] | None = None) -> EventLog:
    users, items, times = zip(*rows, strict=True)
    return EventLog(
        np.array(users, np.int32),
        np.array(items, np.int32),
        np.array(times, np.float64),
        pl.Series(range(6)),
        pl.Series(range(6)),
        None if ratings is None else np.array(ratings),
    )


def kept(events: EventLog, **options: object) -> list[tuple[int, int, float]]:
    left, _ = filter_events(events, PrepareOptions(**options))  # type: ignore[arg-type]
    return list(zip(left.users.tolist(), left.items.tolist(), left.times.tolist(), strict=True))


LOG = log([(0, 1, 30), (1, 2, 10), (0, 3, 10), (0, 1, 10), (1, 2, 20), (1, 2, 20)])


def test_equal_times_keep_the_order_of_the_file() -> None:
    assert kept(LOG) == [(0, 3, 10), (0, 1, 10), (0, 1, 30), (1, 2, 10), (1, 2, 20), (1, 2, 20)]


def test_since_is_included_and_until_is_not() -> None:
    assert kept(LOG, since=20, until=30) == [(1, 2, 20), (1, 2, 20)]
    assert kept(LOG, since="1970-01-01T00:00:20Z") == [(0, 1, 30), (1, 2, 20), (1, 2, 20)]


def test_drop_duplicates_keeps_the_first() -> None:
    assert kept(LOG, drop_duplicates=True)[-2:] == [(1, 2, 10), (1, 2, 20)]
    assert filter_events(LOG, PrepareOptions(drop_duplicates=True))[1] == {"drop_duplicates": 1}


def test_drop_repeats_looks_at_neighbours_in_time() -> None:
    assert kept(LOG, drop_repeats=True) == [(0, 3, 10), (0, 1, 10), (1, 2, 10)]
    apart = log([(0, 1, 1), (0, 2, 2), (0, 1, 3), (1, 1, 4)])
    assert len(kept(apart, drop_repeats=True)) == 4


def test_ratings_that_are_missing_do_not_pass() -> None:
    rated = log([(0, 1, 1), (0, 2, 2), (0, 3, 3)], [4, np.nan, 3])
    assert kept(rated, rating_at_least=4) == [(0, 1, 1)]


# user 0: a b c, user 1: a b, user 2: c d.  Item d is rare; without it user 2 is short; without
# user 2 item c is rare; without c user 0 still has a and b.
CHAIN = log([(0, 0, 1), (0, 1, 2), (0, 2, 3), (1, 0, 1), (1, 1, 2), (2, 2, 1), (2, 3, 2)])


def test_the_core_is_repeated_until_stable() -> None:
    left, removed = filter_events(CHAIN, PrepareOptions(min_user_events=2, min_item_events=2))
    assert left.users.tolist() == [0, 0, 1, 1]
    assert left.items.tolist() == [0, 1, 0, 1]
    assert removed == {"min_item_events": 2, "min_user_events": 1}


def test_one_bound_alone_is_one_pass() -> None:
    assert [item for _, item, _ in kept(CHAIN, min_item_events=2)] == [0, 1, 2, 0, 1, 2]
    assert {user for user, _, _ in kept(CHAIN, min_user_events=3)} == {0}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"min_user_events": 9},
            "min_user_events=9 removes all 7 events that were left; loosen it",
        ),
        ({"since": "2024-01-01"}, "since=2024-01-01 removes all 7"),
        ({"min_user_events": 3, "min_item_events": 2}, "min_item_events=2 removes all 3"),
    ],
)
def test_the_filter_that_leaves_nothing_is_named(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        kept(CHAIN, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"min_user_events": 0}, "min_user_events=0 must be at least 1$"),
        ({"min_item_events": 2.5}, r"min_item_events=2\.5 must be a whole number$"),
        ({"rating_at_least": float("nan")}, "rating_at_least=nan must be a finite number$"),
        ({"since": "soon"}, "since='soon' is not a time; use a number or an ISO date"),
        ({"since": 5, "until": 5}, "not before"),
        ({"feature_kinds": {"year": "colour"}}, "categorical, multi, numeric, text"),
    ],
)
def test_options_are_checked_at_birth(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        PrepareOptions(**options)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9)), min_size=1),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_a_core_is_a_core_and_the_largest(
    rows: list[tuple[int, int, float]], least_user: int, least_item: int
) -> None:
    """Compared with dropping one offender at a time, in no clever order."""
    left = list(rows)
    while offenders := [
        row
        for row in left
        if sum(other[0] == row[0] for other in left) < least_user
        or sum(other[1] == row[1] for other in left) < least_item
    ]:
        left.remove(offenders[-1])
    options = {"min_user_events": least_user, "min_item_events": least_item}
    if left:
        assert sorted(kept(log(rows), **options)) == sorted(left)
    else:
        with pytest.raises(InputError, match="removes all"):
            kept(log(rows), **options)
