from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from linrec.data.reading.times import times
from linrec.data.reading.values import Column, ids, numbers
from linrec.types import InputError
from tests.data.conftest import Write

NOON = 1_717_156_800.0  # 2024-05-31T12:00:00Z
MIDNIGHT = NOON - 12 * 3600


def column(values: Any, role: str = "item", **more: Any) -> Column:
    return Column(pl.Series("c", values), role, "log", **more)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "20"], [1, 20]),
        (["1", "a"], ["1", "a"]),
        (["007", "8"], ["007", "8"]),
        (["1.0", "2.00"], [1, 2]),
        (["1.5", "2.0"], ["1.5", "2.0"]),
        ([" 1", "2 "], [1, 2]),
        (["99999999999999999999", "1"], ["99999999999999999999", "1"]),
        (["-4", "4"], [-4, 4]),
    ],
)
def test_ids_of_formats_without_types(values: list[str], expected: list[object]) -> None:
    assert ids(column(values, untyped=True)).to_list() == expected


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (pl.Series(["1", " 2"]), ["1", " 2"]),
        (pl.Series([1, 2], dtype=pl.UInt8), [1, 2]),
        (pl.Series([1.0, 2.0]), [1, 2]),
        (pl.Series([2**63 + 1, 1], dtype=pl.UInt64), [str(2**63 + 1), "1"]),
        (pl.Series(["a", "b"], dtype=pl.Categorical), ["a", "b"]),
    ],
)
def test_ids_with_a_type_keep_it(series: pl.Series, expected: list[object]) -> None:
    assert ids(column(series)).to_list() == expected


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([1.0, 2.5], r"log, row 2, column 'c': an id must be"),
        ([1.0, None], "row 2, column 'c': the item id is missing"),
        ([1.0, float("nan")], "row 2, column 'c': the item id is missing"),
        (["a", None], "row 2.*missing"),
        (["a", ""], "row 2.*missing"),
        (["a", "b\ufffd"], "row 2.*not UTF-8"),
        ([True, False], "values of type Boolean"),
        ([[1], [2]], "values of type List"),
        ([date(2020, 1, 1)], "set item= to another column"),
    ],
)
def test_what_cannot_be_an_id(values: list[object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ids(column(values))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([978300019, 2**40], [978300019.0, 2.0**40]),
        ([978300019.25], [978300019.25]),
        (["978300019", "1.5"], [978300019.0, 1.5]),
        (["2024-05-31T12:00:00Z"], [NOON]),
        (["2024-05-31T12:00:00.250Z"], [NOON + 0.25]),
        (["2024-05-31 12:00:00", "2024-05-31"], [NOON, MIDNIGHT]),
        (["2024-05-31T14:00:00+02:00", "2024-05-31T14:00+0200"], [NOON, NOON]),
        (["2024-05-31 12:00"], [NOON]),
        ([date(2024, 5, 31)], [MIDNIGHT]),
        ([datetime(2024, 5, 31, 12)], [NOON]),
        ([datetime(2024, 5, 31, 14, tzinfo=timezone(timedelta(hours=2)))], [NOON]),
        (["1969-12-31T23:59:59Z"], [-1.0]),
    ],
)
def test_times_of_all_kinds(values: list[object], expected: list[float]) -> None:
    read = times(column(values, "time"))
    assert read.to_list() == expected
    assert read.dtype == pl.Float64


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Paris"])
def test_datetimes_of_every_unit_and_zone(unit: Any, zone: str | None) -> None:
    moment = pl.Series([datetime(2024, 5, 31, 12)], dtype=pl.Datetime(unit))
    if zone:
        moment = moment.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    assert times(column(moment, "time")).to_list() == [NOON]


def test_neighbouring_seconds_stay_apart() -> None:
    """A float32 could not tell unix seconds within a minute apart."""
    assert times(column(["1717156800", "1717156801"], "time")).diff()[1] == 1.0


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (["2024-05-31", "yesterday"], "row 2, column 'c': the time 'yesterday' is not one.*time="),
        (["2024-05-31", "2024-02-30"], "row 2"),
        (["1", "2024-05-31"], "row 2"),
        (["2024-05-31", "1"], "row 2"),
        (["1", None], "row 2, column 'c': the time is missing"),
        (["1", "nan"], "row 2"),
        ([1.0, float("inf")], "row 2"),
        ([1.0, None], "the time is missing"),
        ([timedelta(1)], "values of type Duration"),
        ([[1.0]], "values of type List"),
        ([True], "values of type Boolean"),
    ],
)
def test_what_cannot_be_a_time(values: list[object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        times(column(values, "time"))


def test_numbers_may_be_missing_but_not_words() -> None:
    assert numbers(column(["4.5", None, " 3 "])).to_list() == [4.5, None, 3.0]
    assert numbers(column([4, None])).to_list() == [4.0, None]
    with pytest.raises(InputError, match="row 2, column 'c': 'good' is not a number"):
        numbers(column(["1", "good"]))
    with pytest.raises(InputError, match="values of type Date"):
        numbers(column([date(2020, 1, 1)]))


def test_an_error_names_the_line_where_rows_are_lines(write: Write) -> None:
    def sentence(path: Path, blank: list[bool] | None = None) -> str:
        marked = None if blank is None else pl.Series(blank)
        with pytest.raises(InputError) as caught:
            ids(column(["a", None], path=path, lines_before=1, blank=marked))
        return str(caught.value)

    assert "row 2 (line 3)" in sentence(write("a.csv", "c\na\n,\n"))
    assert "row 3 (line 4)" in sentence(write("b.csv", "c\na\n\n,\n"), [False, True, False])
    assert "row 2," in sentence(write("c.csv", 'c\n"a\nb"\n,\n'))
