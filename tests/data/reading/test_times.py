"""Times in every unit and format become seconds; what is ambiguous is an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linrec.data.preparing.prepare import prepare
from linrec.data.reading.times import TIME_UNITS, in_seconds
from linrec.types import InputError
from tests.data.conftest import Write

NOON = 1_717_156_800.0  # 2024-05-31T12:00:00Z
MIDNIGHT = NOON - 12 * 3600


def log(times: list[object]) -> pl.DataFrame:
    return pl.DataFrame({"user": 1, "item": range(len(times)), "ts": pl.Series(times)})


@pytest.mark.parametrize(("unit", "name"), [("ms", "milli"), ("us", "micro"), ("ns", "nano")])
@pytest.mark.parametrize("text", [False, True])
def test_units_are_recognised_and_noted(unit: str, name: str, text: bool) -> None:
    times: list[object] = [int((NOON + n) * TIME_UNITS[unit]) for n in range(3)]
    store = prepare(log([str(time) for time in times] if text else times))
    assert store.times.tolist() == [NOON, NOON + 1, NOON + 2]
    note = f"The times in 'ts' were read as {name}seconds, from 2024-05-31 to 2024-05-31."
    assert note in store.summary["notes"]


def test_dates_as_digits_are_recognised() -> None:
    store = prepare(log([20240531, 20240601, 20240229]))
    assert store.times.tolist() == [MIDNIGHT - 92 * 86_400, MIDNIGHT, MIDNIGHT + 86_400]
    assert any("YYYYMMDD" in note for note in store.summary["notes"])


@pytest.mark.parametrize(
    "times", [[1, 2, 3], [NOON, 5.0], [20240531, 20241331], [20240531, 20240230], [20240531.5]]
)
def test_other_numbers_stay_as_they_are(times: list[object]) -> None:
    store = prepare(log(times))
    assert sorted(times) == store.times.tolist()  # type: ignore[type-var]
    assert not any("were read as" in note for note in store.summary["notes"])


@pytest.mark.parametrize("times", [[NOON, NOON * 1e3], [NOON * 1e6, NOON * 1e9]])
def test_mixed_units_are_an_error_unless_one_is_set(times: list[object]) -> None:
    with pytest.raises(InputError, match=r"column 'ts', mixes units of time.*set time_unit="):
        prepare(log(times))
    store = prepare(log(times), time_unit="ms")
    assert store.times.tolist() == [time / 1e3 for time in times]  # type: ignore[operator]


def test_units_across_files(write: Write) -> None:
    write("logs/a.csv", f"user,item,time\n1,a,{int(NOON)}\n")
    folder = write("logs/b.csv", f"user,item,time\n1,b,{int(NOON)}000\n").parent
    with pytest.raises(InputError, match="mixes units of time"):
        prepare(folder)


def test_filters_by_date_apply_to_any_unit() -> None:
    times: list[object] = [(NOON + day * 86_400) * 1e3 for day in range(4)]
    assert prepare(log(times), since="2024-06-02").n_events == 2
    assert prepare(log(times), since=times[2]).n_events == 2
    assert prepare(log(times), until=NOON + 86_400).n_events == 1


def test_numeric_bounds_follow_a_given_unit() -> None:
    small: list[object] = [0, 1_000, 2_000, 3_000]  # too small to look like milliseconds
    assert prepare(log(small), time_unit="ms", since=1_000, until="3000").times.tolist() == [1, 2]
    micro: list[object] = [(NOON + n) * 1e6 for n in range(3)]
    # as seconds, these bounds would look like milliseconds
    store = prepare(log(micro), time_unit="us", since=NOON * 1e3, until=(NOON + 1) * 1e6)
    assert store.times.tolist() == [NOON]
    assert prepare(log(micro), time_unit="us", since="2024-05-31T12:00:02Z").n_events == 1


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("31/05/2024 12:00", "%d/%m/%Y %H:%M"),
        ("31.05.2024 12h00", "%d.%m.%Y %Hh%M"),
        (202405311200, "%Y%m%d%H%M"),
        ("2024-05-31 14:00:00 +0200", "%Y-%m-%d %H:%M:%S %z"),
        ("2024-05-31 12:00:00 UTC", None),
        ("2024-05-31 12:00:00.000UTC", None),
    ],
)
def test_formats(written: object, form: str | None) -> None:
    assert prepare(log([written]), time_format=form).times.tolist() == [NOON]


@pytest.mark.parametrize(
    ("times", "options", "sentence"),
    [
        ([1], {"time_unit": "weeks"}, "time_unit=weeks must be 's', 'ms', 'us' or 'ns'"),
        (["31/05/2024", "soon"], {"time_format": "%d/%m/%Y"}, "row 2.*'soon' is not in the format"),
        ([1_717_156_800], {"time_format": "%q"}, "'1717156800' is not in the format '%q'; correct"),
        (["31/05/2024"], {}, "'31/05/2024' is not one.*set time_format=.*such as '%d/%m/%Y', or"),
        (["01/02/2024"], {}, "such as '%d/%m/%Y', or '%m/%d/%Y' if the month comes first, or set"),
        (["01/02/2024", "01/31/2024"], {}, "row 1.*such as '%m/%d/%Y', or set"),
        (["01/02/2024", "31.01.2024"], {}, "row 1.*such as '%d/%m/%Y', or set"),
        (["2024-05-31", None], {}, "row 2.*the time is missing; give it one or remove the row, or"),
        (["05/31/2024 7:05"], {}, "such as '%m/%d/%Y %H:%M', or"),
        (["31.05.2024 7:05:59"], {}, "such as '%d.%m.%Y %H:%M:%S', or"),
        (["soon"], {}, "such as '%d/%m/%Y %H:%M', or"),
        (["2024-05-31"], {"time_unit": "ms"}, "time_unit=ms does not apply"),
    ],
)
def test_what_does_not_fit(
    times: list[object], options: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=sentence):
        prepare(log(times), tmp_path / "data", **options)
    assert not list(tmp_path.iterdir())


@given(st.lists(st.floats(1e8, 9e10), min_size=1), st.sampled_from(sorted(TIME_UNITS)))
def test_any_unit_gives_the_same_seconds(seconds: list[float], unit: str) -> None:
    values = np.array(seconds)
    assert np.allclose(in_seconds(values * TIME_UNITS[unit], "log")[0], values, rtol=1e-15)
