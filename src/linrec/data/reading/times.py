"""Times in seconds since 1970: numbers in any unit, ISO dates, or text in a given format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
DAYS = "days"
_PIECE = 1 << 20  # times looked at together
_MICROSECONDS = 1e6
_ISO = (
    "%Y-%m-%d %H:%M:%S%.f%#z",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M%#z",
    "%Y-%m-%d %H:%M",
)
_LOOKED_AT = 1_000  # times that must fit what a message proposes
# in this order: the day first, unless it cannot be one
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
    _require_finite(column, seconds, form)
    if unit is None:
        return seconds
    if form is not None or not are_numbers(values):
        column.refuse(f"dates, to which {argument('time_unit', unit)} does not apply,")
    return seconds / TIME_UNITS[unit]


@dataclass(frozen=True, slots=True)
class TimesLook:
    """What tells the unit of times: of some rows of a log, or of all of them together."""

    first: float
    last: float
    days: bool  # whether every one is a date written as YYYYMMDD
    examples: dict[str, float]  # the first time that looks like each of the units


def look_at(values: Times) -> TimesLook | None:
    """None where there is no time."""
    if not len(values):
        return None
    first, last = float(values.min()), float(values.max())
    largest = max(-first, last)
    units = {unit: _DATES[0] * scale for unit, scale in TIME_UNITS.items()}
    found = {unit: _example(values, unit) for unit, low in units.items() if largest >= low}
    examples = {unit: value for unit, value in found.items() if value is not None}
    return TimesLook(first, last, _days(values) is not None, examples)


def together(looks: Iterable[TimesLook | None]) -> TimesLook | None:
    """The look of all rows from those of their stretches, in the order of the log."""
    some = [look for look in looks if look is not None]
    if not some:
        return None
    examples = {
        unit: next(look.examples[unit] for look in some if unit in look.examples)
        for unit in TIME_UNITS
        if any(unit in look.examples for look in some)
    }
    first, last = min(look.first for look in some), max(look.last for look in some)
    return TimesLook(first, last, all(look.days for look in some), examples)


def unit_by(look: TimesLook | None, source: str) -> str | None:
    """The unit that times look like, or days; None if they stay as they are."""
    if look is None or look.days:
        return None if look is None else DAYS
    if max(-look.first, look.last) < _DATES[1]:
        return None
    if len(look.examples) > 1:
        (one, first), (other, second) = list(look.examples.items())[:2]
        raise InputError(
            f"{source} mixes units of time: {first:.15g} looks like {_NAMES[one]} and "
            f"{second:.15g} like {_NAMES[other]}; convert them, or set {argument('time_unit')}"
        )
    unit = next(iter(look.examples), "s")
    return None if unit == "s" else unit


def scaled(values: Times, unit: str | None) -> Times:
    """Seconds of times in a unit that `unit_by` named."""
    if unit is None:
        return values
    if unit != DAYS:
        return np.asarray(values / TIME_UNITS[unit])
    days = _days(values)
    return values if days is None else days


def name_of(unit: str) -> str:
    """What times in a unit look like, in words."""
    return "dates written as YYYYMMDD" if unit == DAYS else _NAMES[unit]


def in_seconds(values: Times, source: str) -> tuple[Times, str | None]:
    """Times that look like another unit, or like YYYYMMDD, in seconds; and what they looked like.

    Numbers too small for a date since 1973 in any unit, such as 1, 2, 3, stay as they are.
    """
    unit = unit_by(look_at(values), source)
    return scaled(values, unit), None if unit is None else name_of(unit)


def date_text(seconds: float) -> str:
    if abs(seconds) >= _DATES[1]:
        return f"{seconds:g}"
    return datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%d")


def are_numbers(values: pl.Series) -> bool:
    """Whether times are numbers, also written as text, to which a unit applies."""
    if values.dtype != pl.String:
        return values.dtype.is_numeric()
    return stripped(values.drop_nulls().head(1)).cast(pl.Float64, strict=False).null_count() == 0


def _example(values: Times, unit: str) -> float | None:
    """The first time that looks like the unit."""
    low, high = (bound * TIME_UNITS[unit] for bound in _DATES)
    for start in range(0, len(values), _PIECE):
        size = np.abs(values[start : start + _PIECE])
        matches = (size >= low) & ((size < high) | (unit == "ns"))
        if matches.any():
            return float(values[start + matches.argmax()])
    return None


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


def _require_finite(column: Column, seconds: pl.Series, form: str | None) -> None:
    broken = ~seconds.is_finite().fill_null(False)
    if not broken.any():
        return
    written = _written(column.values, broken)
    value = None if written[0] is None else repr(written[0][:40])
    if value is None:
        trouble, remedy = "the time is missing", "give it one or remove the row"
    elif form is not None:
        trouble = f"the time {value} is not in the format {form!r}"
        remedy = f"correct it, set {argument('time_format')} to the format of all times"
    else:
        trouble = f"the time {value} is not one"
        remedy = (
            "use numbers or ISO dates such as 2024-05-31T12:00:00, set "
            f"{argument('time_format')} to their format, {_proposal(written)}"
        )
    column.fail(
        broken,
        trouble,
        f"{remedy}, or set {argument('time')} to another column",
        "no readable time",
    )


def _written(values: pl.Series, broken: pl.Series) -> list[str | None]:
    """The first time that cannot be read, and others that tell the day from the month."""
    rows = broken.arg_true()
    spread = rows.gather_every(max(1, len(rows) // _LOOKED_AT))
    return [None if value is None else str(value).strip() for value in values.gather(spread)]


def _proposal(written: list[str | None]) -> str:
    """The formats that read all of these: two if none of them tells the day from the month."""
    some = [value for value in written if value is not None]
    fit = [form for form in _FORMS if some and all(_fits(value, form) for value in some)]
    if not fit:  # not even one format in all rows: that of the first
        fit = [form for form in _FORMS if some and _fits(some[0], form)][:1] or ["%d/%m/%Y %H:%M"]
    first, *others = fit
    swapped = f", or {others[0]!r} if the month comes first" if others else ""
    return f"such as {first!r}{swapped}"


def _fits(written: str, form: str) -> bool:
    try:
        datetime.strptime(written, form)
    except ValueError:
        return False
    return True
