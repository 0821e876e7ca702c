"""Times in seconds since 1970: numbers in any unit, ISO dates, or text in a given format."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.reading.values import Column, stripped
from linrec.types import InputError, argument

TIME_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}

_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
# the times from 1973 to 5138, in seconds; in each other unit the range starts where this one ends
_DATES = (1e8, 1e11)
_DAYS = (19000101, 21001231)  # dates written as YYYYMMDD
_DAY = 86_400.0
_MICROSECONDS = 1e6
_ISO = (
    "%Y-%m-%d %H:%M:%S%.f%#z",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M%#z",
    "%Y-%m-%d %H:%M",
)
# what a message proposes, the first that fits: the day first, unless it cannot be one
_FORMS = [
    f"{date}{time}"
    for date in ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y")
    for time in ("", " %H:%M", " %H:%M:%S")
]

Times = NDArray[np.float64]


def times(
    column: Column, unit: str | None = None, form: str | None = None, *, by_majority: bool = False
) -> pl.Series:
    """Float64: dates as seconds since 1970 (UTC where no zone is given), numbers as they are.

    A given unit makes seconds of numbers. Without one that is left to `in_seconds`, because all
    times of a log are needed to recognise it. Whether text is numbers or dates is decided by the
    first row or, if wrong rows are left out, by the majority.
    """
    values, kind = column.values, column.values.dtype
    if form is not None:
        seconds = _parsed(column, form)
    elif kind.is_numeric():
        seconds = values.cast(pl.Float64)
    elif isinstance(kind, pl.Datetime | pl.Date):
        seconds = _epoch(values)
    elif kind == pl.String:
        text = stripped(values)
        numbers = text.cast(pl.Float64, strict=False)
        if numbers.null_count() == text.null_count():
            seconds = numbers
        elif by_majority:
            seconds = min(numbers, _iso(text), key=pl.Series.null_count)
        else:
            seconds = numbers if are_numbers(values) else _iso(text)
    else:
        column.refuse(f"values of type {kind}")
    _require_finite(column, seconds)
    if unit is None:
        return seconds
    if form is not None or not are_numbers(values):
        column.refuse(f"dates, to which {argument('time_unit', unit)} does not apply,")
    return seconds / TIME_UNITS[unit]


def in_seconds(values: Times, source: str) -> tuple[Times, str | None]:
    """Times that look like another unit, or like YYYYMMDD, in seconds; and what they looked like.

    Numbers too small for a date since 1973 in any unit, such as 1, 2, 3, stay as they are.
    """
    days = _days(values)
    if days is not None:
        return days, "dates written as YYYYMMDD"
    if max(-values.min(initial=0.0), values.max(initial=0.0)) < _DATES[1]:
        return values, None  # most logs, without a copy of their times
    size = np.abs(values)
    examples = {
        unit: float(values[matches.argmax()])
        for unit, scale in TIME_UNITS.items()
        if (matches := _in_range(size, unit, scale)).any()
    }
    if len(examples) > 1:
        (one, first), (other, second) = list(examples.items())[:2]
        raise InputError(
            f"{source} mixes units of time: {first:.15g} looks like {_NAMES[one]} and "
            f"{second:.15g} like {_NAMES[other]}; convert them, or set {argument('time_unit')}"
        )
    unit = next(iter(examples), "s")
    return (values, None) if unit == "s" else (values / TIME_UNITS[unit], _NAMES[unit])


def date_text(seconds: float) -> str:
    if abs(seconds) >= _DATES[1]:
        return f"{seconds:g}"
    return datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%d")


def are_numbers(values: pl.Series) -> bool:
    """Whether times are numbers, also written as text, to which a unit applies."""
    if values.dtype != pl.String:
        return values.dtype.is_numeric()
    return stripped(values.drop_nulls().head(1)).cast(pl.Float64, strict=False).null_count() == 0


def _in_range(size: Times, unit: str, scale: float) -> NDArray[np.bool_]:
    low, high = (bound * scale for bound in _DATES)
    return (size >= low) & ((size < high) | (unit == "ns"))


def _days(values: Times) -> Times | None:
    """Seconds, if every number is a date written as YYYYMMDD."""
    if not len(values) or values.min() < _DAYS[0] or values.max() > _DAYS[1]:
        return None
    whole = values.astype(np.int64)
    year, month, day = whole // 10_000, whole // 100 % 100, whole % 100
    if (whole != values).any() or (month < 1).any() or (month > 12).any() or (day < 1).any():
        return None
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    dates = months.astype("datetime64[D]") + (day - 1)
    if (dates.astype("datetime64[M]") != months).any():
        return None
    return np.asarray(dates.astype(np.int64) * _DAY)


def _parsed(column: Column, form: str) -> pl.Series:
    """Text in a given format; integers are read as the digits they are written with."""
    text = stripped(column.values.cast(pl.String))
    try:
        moments = text.str.to_datetime(form, strict=False, time_unit="us")
    except pl.exceptions.PolarsError as error:
        raise InputError(
            f"{argument('time_format', repr(form))} cannot be used ({str(error).splitlines()[0]}); "
            "give a format such as '%d/%m/%Y %H:%M'"
        ) from error
    return _epoch(moments)


def _iso(text: pl.Series) -> pl.Series:
    """Parse ISO dates; plain numbers among them are not parsed, and so are errors."""
    spaced = text.str.replace(r"^(\d{4}-\d\d-\d\d)[Tt]", "$1 ")
    spaced = spaced.str.replace(r"(\s*UTC|[zZ])$", "+00:00")
    parsed = pl.Series(text.name, [None], pl.Float64).new_from_index(0, len(text))
    for form in _ISO:
        parsed = parsed.fill_null(
            _epoch(spaced.str.to_datetime(form, strict=False, time_unit="us"))
        )
        if parsed.null_count() == text.null_count():
            break
    return parsed


def _epoch(moments: pl.Series) -> pl.Series:
    return moments.dt.epoch("us").cast(pl.Float64) / _MICROSECONDS


def _require_finite(column: Column, seconds: pl.Series) -> None:
    broken = ~seconds.is_finite().fill_null(False)
    if not broken.any():
        return
    written = column.values[int(broken.arg_true()[0])]
    form = next((form for form in _FORMS if _fits(written, form)), "%d/%m/%Y %H:%M")
    column.fail(
        broken,
        "the time is missing" if written is None else f"the time {str(written)[:40]!r} is not one",
        f"use numbers or ISO dates such as 2024-05-31T12:00:00, set {argument('time_format')} to "
        f"their format, such as {form!r}, or set {argument('time')} to another column",
        "no readable time",
    )


def _fits(written: object, form: str) -> bool:
    try:
        datetime.strptime(str(written).strip(), form)
    except ValueError:
        return False
    return True
