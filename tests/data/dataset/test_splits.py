"""Splits by hand, and laws: what is held out is never trained on, and histories end before it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.splits import Holdout, Split, leave_one_out
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.data.preparing.splitting import SplitConfig
from linrec.recommender import Recommender
from linrec.types import InputError

Row = tuple[int, list[int], list[int]]


def rows(sequences: Sequences) -> list[list[int]]:
    return [sequences[row].tolist() for row in range(len(sequences))]


def as_rows(part: Holdout) -> list[Row]:
    """User, history and targets of each row."""
    ends = np.cumsum(part.target_counts)
    targets = [one.tolist() for one in np.split(part.targets, ends[:-1])]
    return list(zip(part.users.tolist(), rows(part.histories), targets, strict=True))


def test_last_tests_and_the_one_before_validates() -> None:
    split = leave_one_out(Sequences.of([[1, 2, 3, 4], [5, 6], [7, 8, 9], [10]]))
    assert rows(split.train) == [[1, 2], [5, 6], [7], [10]]
    assert as_rows(split.valid) == [(0, [1, 2], [3]), (2, [7], [8])]
    assert as_rows(split.test) == [(0, [1, 2, 3], [4]), (2, [7, 8], [9])]
    assert split.part("valid") is split.valid
    assert split.part("test") is split.test
    assert len(split.test) == 2
    assert split.test.owners is None


def test_too_short_to_split() -> None:
    with pytest.raises(InputError, match="3 events"):
        leave_one_out(Sequences.of([[1, 2], [3]]))


LOG = [  # user, item, day of January 2013, receipt
    ("a", 1, 1, 1), ("a", 2, 2, 2), ("a", 3, 2, 2), ("a", 3, 2, 3), ("a", 4, 11, 4),
    ("a", 5, 12, 5), ("a", 6, 21, 6), ("a", 5, 21, 6), ("a", 7, 22, 7),
    ("b", 1, 3, 8), ("b", 2, 4, 9),
    ("c", 8, 15, 10), ("c", 2, 15, 10), ("c", 1, 25, 11),
    ("d", 1, 26, 12), ("d", 2, 27, 13),
]  # fmt: skip
TEMPORAL = {"split": "temporal", "valid_from": "2013-01-10", "test_from": "2013-01-20"}


def shop(**options: Any) -> SequenceStore:
    log = pl.DataFrame(LOG, ["user", "item", "day", "receipt"], orient="row")
    dates = pl.format("2013-01-{}", pl.col("day").cast(pl.String).str.zfill(2))
    return prepare(log.with_columns(time=dates), time="time", **options)


def by_id(split: Split, store: SequenceStore, part: str) -> list[Row]:
    ids = store.catalogue.ids_of
    return [
        (user, ids(np.array(past)).to_list(), ids(np.array(targets)).to_list())
        for user, past, targets in as_rows(split.part(part))
    ]


def test_nothing_from_a_time_on_is_trained_on() -> None:
    store = shop()
    split = SplitConfig(**TEMPORAL).of(store)
    assert [len(row) for row in rows(split.train)] == [4, 2, 0, 0]
    assert by_id(split, store, "valid") == [(0, [1, 2, 3, 3], [4]), (2, [8], [2])]
    assert by_id(split, store, "test") == [
        (0, [1, 2, 3, 3, 4, 5], [6]), (2, [8, 2], [1]), (3, [1], [2]),
    ]  # fmt: skip
    assert split.test.at is not None
    assert split.test.histories.until is not None
    assert split.test.at.tolist() == split.test.histories.until.tolist()


def test_the_next_n_are_a_set() -> None:
    store = shop()
    split = SplitConfig(**TEMPORAL, targets="3").of(store)
    assert by_id(split, store, "valid") == [(0, [1, 2, 3, 3], [4, 5]), (2, [8], [2])]
    assert by_id(split, store, "test")[0] == (0, [1, 2, 3, 3, 4, 5], [6, 5, 7])
    owners = split.test.owners
    assert owners is not None
    assert owners.several
    assert owners.rows.tolist() == [0, 0, 0, 1, 2]
    assert owners.users.tolist() == [0, 1, 2]


def test_every_event_has_its_own_past() -> None:
    store = shop()
    split = SplitConfig(**TEMPORAL, targets="every").of(store)
    assert by_id(split, store, "test") == [
        (0, [1, 2, 3, 3, 4, 5], [6]), (0, [1, 2, 3, 3, 4, 5, 6], [5]),
        (0, [1, 2, 3, 3, 4, 5, 6, 5], [7]), (2, [8, 2], [1]), (3, [1], [2]),
    ]  # fmt: skip
    owners = split.test.owners
    assert owners is not None
    assert not owners.several
    assert owners.users.tolist() == [0, 0, 0, 1, 2]
    assert split.test.n_users == 3


@pytest.mark.parametrize("group", [None, "receipt"])
def test_the_history_ends_before_the_basket(group: str | None) -> None:
    store = shop(group=group)
    whole = SplitConfig(targets="basket").of(store)
    assert by_id(whole, store, "test") == [(0, [1, 2, 3, 3, 4, 5, 6, 5], [7])]
    assert by_id(whole, store, "valid") == [(0, [1, 2, 3, 3, 4, 5], [6, 5])]
    later = SplitConfig(**TEMPORAL, targets="basket").of(store)
    assert by_id(later, store, "test")[:2] == [
        (0, [1, 2, 3, 3, 4, 5], [6, 5]), (2, [8, 2], [1]),
    ]  # fmt: skip
    # user c has no past before the first basket, and only that one to validate on
    assert by_id(later, store, "valid") == [(0, [1, 2, 3, 3], [4])]
    two = SplitConfig(split="last-k", last=2, targets="basket").of(store)
    assert [len(row) for row in rows(two.train)] == [4, 2, 3, 2]
    assert by_id(two, store, "valid") == [(0, [1, 2, 3, 3], [4])]


def test_a_receipt_is_not_a_day() -> None:
    config = SplitConfig(split="last-k", last=3, targets="basket")
    store = shop(group="receipt")
    assert by_id(config.of(store), store, "valid") == [(0, [1], [2, 3])]
    with pytest.raises(InputError, match="no user has 7 baskets, the minimum to"):  # six days
        config.of(shop())


@given(
    st.lists(st.lists(st.integers(1, 5), max_size=12), min_size=1, max_size=5),
    st.integers(1, 3),
    st.sampled_from(["next", "2", "basket", "every"]),
    st.integers(0, 1_000),
)
def test_what_is_held_out_is_never_trained_on(lists, k, targets, seed) -> None:
    rng, lists = np.random.default_rng(seed), [[1], *lists]
    events = Sequences.of(lists)
    times = np.concatenate([np.empty(0), *(np.sort(rng.integers(0, 9, len(row))) for row in lists)])
    store = _store(events, times)
    for settings in (
        {"split": "last-k", "last": max(k, 2) if targets == "2" else k},
        {"split": "temporal", "valid_from": 3.0, "test_from": 6.0},
    ):
        config = SplitConfig(**settings, targets=targets)
        try:
            split = config.of(store)
        except InputError:
            continue
        _check(split, store, config)


def _store(events: Sequences, times: np.ndarray) -> SequenceStore:
    small = shop()
    offsets = np.concatenate([[0], events.ends])
    summary = {"times": "real", "times_reason": ""}
    return replace(small, items=events.items, offsets=offsets, times=times, summary=summary)


def _check(split: Split, store: SequenceStore, config: SplitConfig) -> None:
    whole, starts = store.sequences(), store.basket_starts()
    trained = split.train.ends
    assert (split.train.starts == whole.starts).all()
    for part, others in ((split.valid, split.test), (split.test, None)):
        past, first = part.histories, part.histories.ends
        assert (past.starts == whole.starts[part.users]).all()
        assert (past.lengths > 0).all()
        assert (first >= trained[part.users]).all()
        assert (np.diff(part.users) >= 0).all()
        for row, (_, _, targets) in enumerate(as_rows(part)):
            assert len(set(targets)) == len(targets) > 0
            ahead = store.items[first[row] : whole.ends[part.users[row]]].tolist()
            assert ahead[0] == targets[0]
            assert set(targets) <= set(ahead)
            if config.targets == "basket":
                assert starts[first[row]]
        if config.split == "temporal":
            low = 3.0 if others is not None else 6.0
            assert (store.times[first] >= low).all()
            assert part.at is not None
            assert (part.at == store.times[first]).all()
    if config.split == "temporal":
        assert all(
            (store.times[start:end] < 3.0).all()
            for start, end in zip(split.train.starts, split.train.ends, strict=True)
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "random"}, "split=random must be 'leave-one-out', 'last-k' or 'temporal'"),
        ({"split": "temporal"}, "split=temporal needs valid_from=; add it"),
        ({"split": "last-k"}, "split=last-k needs last=; add it"),
        ({"last": 3}, "split=leave-one-out has no use for last=; leave it out, or choose split=la"),
        (TEMPORAL | {"last": 3}, "split=temporal has no use for last="),
        (TEMPORAL | {"test_from": "2012-01-01"}, "valid_from=2013-01-10 is not before test_from"),
        (TEMPORAL | {"test_from": "soon"}, "test_from='soon' is not a time; use a number or an IS"),
        ({"targets": "two"}, "targets=two must be next, a number of events, basket or every"),
        ({"targets": "0"}, "targets=0 must be next, a number of events"),
        ({"targets": "3"}, "split=leave-one-out holds out one event.*choose split=last-k with las"),
        (
            {"split": "last-k", "last": 2, "targets": "5"},
            "split=last-k holds out 2 events, so there are not targets=5; choose last=5",
        ),
        (
            {"split": "last-k", "last": 1, "targets": "2"},
            "holds out one event, .*choose last=2",
        ),
        ({"split": "last-k", "last": 0}, "last=0 must be at least 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SplitConfig(**settings)


def test_numbers_and_dates_of_python_are_those_of_the_command_line() -> None:
    written = {"valid_from": "2013-01-10", "test_from": "2013-02-01T12:00:00", "targets": "3"}
    given = {"valid_from": date(2013, 1, 10), "test_from": datetime(2013, 2, 1, 12), "targets": 3}
    settings = {"recipe": "small", "split": "temporal"}
    assert Recommender(**settings, **given).config == Recommender(**settings, **written).config


def test_data_that_cannot_be_split_so_are_refused() -> None:
    with pytest.raises(InputError, match=r"no user has 21 events, the minimum .* on 10 each"):
        SplitConfig(split="last-k", last=10).of(shop())
    with pytest.raises(InputError, match=r"no user has a past and an event to test on with test_"):
        SplitConfig(**TEMPORAL | {"test_from": "2014-01-01"}).of(shop())
    late = TEMPORAL | {"valid_from": "2014-01-01", "test_from": "2014-02-01"}
    with pytest.raises(InputError, match=r"to validate on with valid_from=2014-01-01; the log is"):
        SplitConfig(**late).of(shop())
    ordered = shop(times="order")
    with pytest.raises(InputError, match=r"only an order .*has no date to split at"):
        SplitConfig(**TEMPORAL).of(ordered)
    with pytest.raises(InputError, match="no events are one basket; prepare the log with group="):
        SplitConfig(targets="basket").of(ordered)
    assert len(SplitConfig(targets="basket").of(shop(times="order", group="receipt")).test) == 1
