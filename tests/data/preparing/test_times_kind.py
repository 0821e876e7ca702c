"""Whether times are a clock's or only an order: guessed, given, stored, and shown."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from linrec.data.dataset.statistics import statistics
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.types import InputError

USERS = [1, 1, 1, 2, 2, 2]
ITEMS = list("abcabd")


def prepared(moments: list[float], **options) -> SequenceStore:
    return prepare(pl.DataFrame({"user": USERS, "item": ITEMS, "time": moments}), **options)


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ([0, 1, 2, 0, 1, 2], "all neighbouring events are 1 apart"),
        ([5, 10, 15, 100, 105, 110], "all neighbouring events are 5 apart"),
        ([7] * 6, "all neighbouring events are 0 apart"),
        ([1, 3, 5, 2, 4, 6], "all neighbouring events are 2 apart"),
        ([1, 2, 5, 3, 4, 6], "they number the rows"),
    ],
)
def test_what_counts_events_is_an_order(times, reason) -> None:
    store = prepared(times)
    assert store.times_kind == ("order", f"guessed: {reason}")
    assert store.sequences().times is None


def test_a_clock_is_real() -> None:
    store = prepared([100, 160, 160, 90, 4_000, 5_000])
    assert store.times_kind.kind == "real"
    assert store.sequences().times.tolist() == [100, 160, 160, 90, 4_000, 5_000]


def test_a_filter_does_not_make_row_numbers_a_clock() -> None:
    events = pl.DataFrame({"user": USERS, "item": ITEMS, "time": [0, 1, 4, 2, 3, 5]})
    assert prepare(events, min_item_events=2).times_kind.kind == "order"


def test_what_is_given_is_not_guessed() -> None:
    assert prepared([0, 1, 2, 0, 1, 2], times="real").times_kind == ("real", "given")
    assert prepared([100, 160, 160, 90, 4_000, 5_000], times="order").times_kind.kind == "order"
    with pytest.raises(InputError, match=r"times=clock must be 'real' or 'order'"):
        prepared([0] * 6, times="clock")


def test_the_order_of_the_rows_is_an_order() -> None:
    events = pl.DataFrame({"user": USERS, "item": ITEMS})
    assert prepare(events, time="order").times_kind == ("order", "the order of the rows")


@pytest.mark.parametrize(
    "given", [{"times": "real"}, {"since": "2024-01-01"}, {"until": 8e9}, {"time_unit": "ms"}]
)
def test_the_order_of_the_rows_has_no_times_to_speak_of(given: dict[str, object]) -> None:
    events = pl.DataFrame({"user": USERS, "item": ITEMS})
    name = next(iter(given))
    with pytest.raises(InputError, match=f"order of the rows, .* has no use for {name}="):
        prepare(events, time="order", **given)
    named = events.with_columns(order=pl.Series([1e9, 2e9, 3e9, 1e9, 3e9, 7e9]))
    assert prepare(named, time="order", **given)  # a column of that name is one like any other


def test_it_is_stored_and_shown(tmp_path: Path) -> None:
    prepared([0, 1, 2, 0, 1, 2], out=tmp_path / "data", times="real")
    again = SequenceStore.open(tmp_path / "data")
    assert again.times_kind == ("real", "given")
    assert dict(statistics(again))["times are"] == "real (given)"


def test_a_dataset_that_does_not_say_is_looked_at(tmp_path: Path) -> None:
    prepared([0, 1, 2, 0, 1, 2], out=tmp_path / "data")
    described = tmp_path / "data" / "dataset.json"
    content = json.loads(described.read_text())
    del content["summary"]["times"], content["summary"]["times_reason"]
    described.write_text(json.dumps(content))
    assert SequenceStore.open(tmp_path / "data").times_kind.kind == "order"
