"""From files or frames to an EventLog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from linrec.data.preparing.options import PrepareOptions
from linrec.data.reading import values
from linrec.data.reading.columns import choose_columns, find_column
from linrec.data.reading.formats import Format, Scan
from linrec.data.reading.numbering import Numbering
from linrec.data.reading.paths import find_files
from linrec.files.guard import reading
from linrec.types import EventLog, InputError

FRAME = "the given frame"
ROWS_AT_A_TIME = 1 << 21

_CONVERT = {"user": values.ids, "item": values.ids, "time": values.times, "rating": values.numbers}


@dataclass(frozen=True, slots=True)
class Source:
    """Events as they were read, and what was found out on the way."""

    log: EventLog
    format: str
    guessed: tuple[str, ...]  # our names of the columns nobody set
    items_beside: Path | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Opened:
    """One file or frame, opened but not read."""

    scan: Scan
    name: str
    path: Path | None = None
    lines_before: int | None = None


def read_events(where: object, options: PrepareOptions) -> Source:
    """Read a path, a folder, a pattern or a frame; only the columns that are needed."""
    if isinstance(where, str | Path):
        form, paths = find_files(where, options.format)
        beside = form.items_beside(paths[0])
        return _read([_open(path, form) for path in paths], str(where), form.name, options, beside)
    scan = Scan(as_polars(where).lazy())
    return _read([_Opened(scan, FRAME)], FRAME, "frame", options, None)


def as_polars(frame: Any) -> pl.DataFrame:
    """Any of the frames we take; pandas is recognised without being imported."""
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        with reading(FRAME, "check the query behind it"):
            return frame.collect()
    if type(frame).__module__.partition(".")[0] == "pandas" and hasattr(frame, "columns"):
        with reading(FRAME, "give each column one type"):
            converted: pl.DataFrame = pl.from_pandas(frame)
            return converted
    raise InputError(
        f"cannot read events from a {type(frame).__name__}; give a path, a polars frame or a "
        "pandas frame"
    )


def _open(path: Path, form: Format) -> _Opened:
    with reading(str(path)):
        return _Opened(form.scan(path), str(path), path, form.lines_before)


def _read(
    opened: Sequence[_Opened],
    where: str,
    format_name: str,
    options: PrepareOptions,
    beside: Path | None,
) -> Source:
    given = {role: getattr(options, role) for role in _CONVERT}
    wanted = ["user", "item", "time"]
    if options.rating_at_least is not None or options.rating is not None:
        wanted.append("rating")
    chosen = choose_columns(_names(opened[0]), given, wanted, opened[0].name)
    events, users, items = _numbered(opened, chosen)
    if events.is_empty():
        raise InputError(f"{where} holds no events; give a file with at least one row")
    return Source(
        EventLog(events, users, items, where, chosen),
        format_name,
        tuple(role for role in wanted if given[role] is None),
        beside,
        _grain(opened[0], chosen["time"]),
    )


def _numbered(
    opened: Sequence[_Opened], chosen: dict[str, str]
) -> tuple[pl.DataFrame, pl.Series, pl.Series]:
    """All events with numbers for ids; the ids themselves are held for one stretch at a time."""
    users, items = Numbering(), Numbering()
    parts = [
        part.with_columns(user=users.number(part["user"]), item=items.number(part["item"]))
        for file in opened
        for part in _read_one(file, chosen)
    ]
    return pl.concat(parts, rechunk=True), users.ids, items.ids


def _names(file: _Opened) -> list[str]:
    with reading(file.name):
        return file.scan.frame.collect_schema().names()


def _read_one(file: _Opened, chosen: dict[str, str]) -> Iterator[pl.DataFrame]:
    """The chosen columns of one file under our names and in our types, stretch by stretch."""
    found = _names(file)
    own = {role: find_column(role, name, found, file.name) for role, name in chosen.items()}
    with reading(file.name):
        for before, raw in _stretches(file.scan, list(own.values()), own["time"]):
            yield _converted(file, raw, own, before)


def _stretches(scan: Scan, columns: Sequence[str], time: str) -> Iterator[tuple[int, pl.DataFrame]]:
    """How many rows came before, and the rows.

    Where numbers are written as text, one row can change what all the others mean, and the whole
    is one stretch.
    """
    frame = scan.frame.select(columns)
    if scan.loose or frame.collect_schema()[time] == pl.String:
        yield 0, frame.collect()
        return
    rows = frame.select(pl.len()).collect().item()
    for start in range(0, max(rows, 1), ROWS_AT_A_TIME):
        yield start, frame.slice(start, ROWS_AT_A_TIME).collect()


def _converted(file: _Opened, raw: pl.DataFrame, own: dict[str, str], before: int) -> pl.DataFrame:
    blank = _blank(raw) if file.scan.loose else None
    kept = raw if blank is None else raw.filter(~blank)
    columns = {
        role: values.Column(
            values=kept[name],
            role=role,
            source=file.name,
            loose=name in file.scan.loose,
            path=file.path,
            lines_before=file.lines_before,
            blank=blank,
            rows_before=before,
        )
        for role, name in own.items()
    }
    return pl.DataFrame({role: _CONVERT[role](column) for role, column in columns.items()})


def _blank(raw: pl.DataFrame) -> pl.Series | None:
    """Rows of nothing at all, which is how an empty line of a text file is read."""
    blank = raw.select(pl.all_horizontal(pl.all().is_null()).alias("blank"))["blank"]
    return blank if blank.any() else None


def _grain(file: _Opened, time: str) -> tuple[str, ...]:
    if file.scan.frame.collect_schema()[find_column("time", time, _names(file), "")] != pl.Float32:
        return ()
    return (
        f"The times in {time!r} are 32-bit floats, which near today's unix seconds are a minute "
        "apart: events of one minute may stand in the wrong order. Store them in 64 bits.",
    )
