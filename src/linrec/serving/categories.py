"""At most n items per category in a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from linrec.runs.filters import NOT_FEATURES
from linrec.serving.model import ServedModel
from linrec.types import InputError, argument

Ranked = list[tuple[int, float]]  # item indices and scores, best first


@dataclass(frozen=True, slots=True, eq=False)
class CategoryLimit:
    """Of one feature; an item with several values counts for each of them, one without for none."""

    feature: str
    count: int
    values: pl.Series  # of the items, without PAD

    def of(self, items: Sequence[int]) -> list[list[str]]:
        """The categories of each item."""
        some = self.values.gather([item - 1 for item in items])
        if isinstance(some.dtype, pl.List):
            return [list(each or ()) for each in some.to_list()]
        return [[] if each is None else [str(each)] for each in some.to_list()]

    @property
    def note(self) -> str:
        return f"at most {self.count} per {self.feature}"


def limits_of(model: ServedModel, max_per: Mapping[str, int]) -> tuple[CategoryLimit, ...]:
    """Raises InputError for what is not a feature with categories."""
    return tuple(_limit(model, feature, count) for feature, count in max_per.items())


def _limit(model: ServedModel, feature: str, count: int) -> CategoryLimit:
    table = model.catalogue.table
    features = [
        name
        for name in table.columns
        if name not in (*NOT_FEATURES, "title") and not table[name].dtype.is_numeric()
    ]
    if feature not in features:
        known = f"choose from {', '.join(features)}" if features else "it has none at all"
        raise InputError(
            f"{argument('max_per')}: the run has no item feature {feature!r} with categories; "
            f"{known}"
        )
    return CategoryLimit(feature, count, table[feature])


def within_limits(ranked: Ranked, limits: Sequence[CategoryLimit], k: int) -> Ranked:
    """The best k of which no category has too many: each item is taken if it still fits."""
    items = [item for item, _ in ranked]
    columns = [limit.of(items) for limit in limits]
    taken: list[Counter[str]] = [Counter() for _ in limits]
    chosen: Ranked = []
    for row, pair in enumerate(ranked):
        own = [column[row] for column in columns]
        if all(
            count[value] < limit.count
            for limit, count, values in zip(limits, taken, own, strict=True)
            for value in values
        ):
            chosen.append(pair)
            for count, values in zip(taken, own, strict=True):
                count.update(values)
            if len(chosen) == k:
                break
    return chosen
