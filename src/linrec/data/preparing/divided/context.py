"""Context columns: what kind each is, which all chunks decide together, and its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from numpy.typing import NDArray

from linrec.data.dataset.context import ContextColumn, ContextKind
from linrec.data.preparing.context import kind_of
from linrec.data.preparing.divided.chunks import ColumnLook
from linrec.data.preparing.divided.job import Job
from linrec.data.preparing.divided.scratch import load_table, save_tables
from linrec.data.preparing.feature_kinds import are_whole, as_text, convert
from linrec.data.reading.values import Column
from linrec.files.guard import reading


@dataclass(frozen=True)
class ColumnPlan:
    """How the chunks convert a column, and what its values mean."""

    name: str
    place: int
    kind: ContextKind
    type: pl.DataType  # that the values of all chunks have together
    whole: bool  # floats that stand for integers

    def values(self, job: Job, chunk: int, source: str, rows_before: int) -> NDArray[Any]:
        """Of one chunk, as the dataset has them."""
        raw = load_table(job.chunk(chunk) / f"context-{self.place}.arrow")["value"]
        raw = raw.cast(self.type).alias(self.name)
        if self.kind == "numeric":
            column = convert(Column(raw, self.name, source, rows_before=rows_before), self.kind)
            return ContextColumn.of(self.name, self.kind, column).values
        text = as_text(raw, whole=self.whole)
        return ContextColumn.of_categories(self.name, text, self.categories(job)).values

    def categories(self, job: Job) -> pl.Series:
        return load_table(job.folder / f"categories-{self.place}.arrow")["value"].alias(self.name)

    def column(self, job: Job, values: NDArray[Any]) -> ContextColumn:
        categories = self.categories(job) if self.kind == "categorical" else None
        return ContextColumn(self.name, self.kind, values, categories)


def plan_columns(
    job: Job, looks: Sequence[dict[str, ColumnLook]], declared: dict[str, str], source: str
) -> list[ColumnPlan]:
    return [
        _plan(job, place, [look[name] for look in looks], declared.get(name), source)
        for place, name in enumerate(job.context)
    ]


def _plan(
    job: Job, place: int, looks: Sequence[ColumnLook], declared: str | None, source: str
) -> ColumnPlan:
    name = job.context[place]
    given = job.options.context_kinds[name]
    with reading(source, f"give the column {name!r} one type in all files"):
        empty = [pl.DataFrame({"value": pl.Series([], dtype=look.kind)}) for look in looks]
        kind = pl.concat(empty, how="vertical_relaxed")["value"].dtype
    if kind.is_nested():  # refused, with the sentence of a log that is read at once
        some = given or (None if all(look.guess is None for look in looks) else "categorical")
        kind_of(pl.Series(name, [None], dtype=kind), some, declared, source)
    if given == "numeric" or (declared is None and given is None and _all_numbers(looks)):
        return ColumnPlan(name, place, "numeric", kind, whole=False)
    once = _once(job, place, len(looks), kind).alias(name)
    found = kind_of(once, given, declared, source)
    whole = found == "categorical" and are_whole(once)
    if found == "categorical":
        text = as_text(once, whole=whole)
        categories = text.drop_nulls().unique().sort()
        save_tables(job.folder / f"categories-{place}.arrow", [categories.to_frame("value")])
    return ColumnPlan(name, place, found, kind, whole)


def _all_numbers(looks: Sequence[ColumnLook]) -> bool:
    """What is numbers in every chunk, of one type, is numbers: it only has more values."""
    some = [look for look in looks if look.guess is not None]
    kinds = {look.kind for look in looks}
    return bool(some) and len(kinds) == 1 and all(look.guess == "numeric" for look in some)


def _once(job: Job, place: int, chunks: int, kind: pl.DataType) -> pl.Series:
    """Every value of the column, a few chunks at a time."""
    once = pl.Series("value", [], dtype=kind)
    for chunk in range(chunks):
        table = load_table(job.chunk(chunk) / f"context-{place}-once.arrow")
        once = pl.concat([once, table["value"].cast(kind)]).unique()
    return once
