"""Which items of a run may be recommended: given ones, all but given ones, or by features."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.runs.catalogue import TRAINED, Catalogue
from linrec.types import PAD, InputError, argument

IndexOf = Callable[[Sequence[Any]], NDArray[np.int64]]

if TYPE_CHECKING:
    from typing_extensions import TypedDict

    Condition = Mapping[str, Any] | Sequence[tuple[str, Any]]

    class FilterArguments(TypedDict, total=False):
        only: Sequence[Any] | None
        exclude: Sequence[Any]
        where: Condition


NOT_FEATURES = ("item", "events", TRAINED)  # the columns of a catalogue that every run has


@dataclass(frozen=True, kw_only=True)
class Filters:
    """All three hold: an item is one of `only`, none of `exclude`, and fits `where`.

    where: for each feature the values of which an item must have one. Pairs instead of a mapping
    may name a feature twice, and then both must hold.
    """

    only: Sequence[Any] | None = None
    exclude: Sequence[Any] = ()
    where: Condition = ()

    def __post_init__(self) -> None:
        for name in ("only", "exclude"):
            given = getattr(self, name)
            if given is None and name == "only":
                continue
            if isinstance(given, str | bytes) or not hasattr(given, "__len__"):
                raise InputError(f"{argument(name)} takes a list of items, not a single value")

    def allowed(self, catalogue: Catalogue, index_of: IndexOf | None = None) -> Allowed:
        """What they leave of a catalogue.

        index_of: of item ids, below 1 where unknown; left out, that of the catalogue.
        """
        conditions = self._conditions()
        untrained = catalogue.untrained
        unlearned = None if untrained is None else untrained.numpy()
        if self.only is None and not len(self.exclude) and not conditions:
            return Allowed(None, len(catalogue), unlearned=unlearned)
        index_of = index_of or catalogue.ids.index_of
        only = None if self.only is None else index_of(self.only)
        exclude = index_of(self.exclude)
        shown = np.full(len(catalogue) + 1, only is None)
        if only is not None:
            shown[only[only > 0]] = True
        shown[exclude[exclude > 0]] = False
        shown[PAD] = False
        notes = [*_unknown("only", only), *_unknown("exclude", exclude)]
        for feature, values in conditions:
            fits, missing = matching(catalogue, feature, values)
            shown[1:] &= fits
            notes += missing
        return Allowed(shown, int(shown.sum()), tuple(notes), unlearned)

    def _conditions(self) -> list[tuple[str, list[Any]]]:
        pairs = self.where.items() if isinstance(self.where, Mapping) else self.where
        try:
            return [(feature, _as_list(values)) for feature, values in pairs]
        except (TypeError, ValueError):
            raise InputError(
                f"{argument('where')} takes features with their values, such as "
                '{"genre": ["Comedy"]}'
            ) from None


@dataclass(frozen=True, slots=True, eq=False)
class Allowed:
    """The items that pass the filters."""

    items: NDArray[np.bool_] | None  # [n_items + 1], by index; None: all
    count: int
    notes: tuple[str, ...] = ()
    # [n_items + 1], those that the model learned nothing about and never shows; None: none
    unlearned: NDArray[np.bool_] | None = None

    def why_nothing(self) -> str:
        """Why a list is empty: it has none of these items."""
        if not self.count:
            return "no item passes the filters, so there is nothing to recommend"
        known = self.count - self._unlearned()
        if not known:
            return (
                "the items that pass the filters have no training event: the model learned nothing "
                "about them and does not recommend them"
            )
        items = "the only item" if known == 1 else f"all {known:,} items"
        return f"{items} that may be recommended had been seen, and seen items are hidden"

    def _unlearned(self) -> int:
        if self.unlearned is None:
            return 0
        some = self.unlearned if self.items is None else self.unlearned & self.items
        return int(some.sum())


def matching(
    catalogue: Catalogue, feature: str, values: Collection[Any]
) -> tuple[NDArray[np.bool_], list[str]]:
    """Which items have one of the values, [n_items], and notes on values that none has."""
    features = [name for name in catalogue.table.columns if name not in NOT_FEATURES]
    if feature not in features:
        known = f"choose from {', '.join(features)}" if features else "it has none at all"
        raise InputError(f"{argument('where')}: the run has no item feature {feature!r}; {known}")
    column = catalogue.table[feature]
    fits = np.zeros(len(column), bool)
    notes = []
    for value in values:
        one = _equal(column, value, feature)
        fits |= one
        if not one.any():
            notes.append(f"no item has {feature} {value!r}{_suggestion(column, value)}")
    return fits, notes


# a column of numbers as text has a fraction
_SPELLED = {True: ["true", "1", "1.0"], False: ["false", "0", "0.0"]}


def _equal(column: pl.Series, value: Any, feature: str) -> NDArray[np.bool_]:
    if isinstance(value, bool) and not isinstance(column.dtype, pl.List):
        same = column.cast(pl.String).str.to_lowercase().is_in(_SPELLED[value])
    elif isinstance(column.dtype, pl.List):
        same = column.list.contains(_text(value))
    elif column.dtype.is_numeric():
        try:
            same = column == float(value)
        except (TypeError, ValueError):
            raise InputError(
                f"{argument('where')}: the feature {feature!r} holds numbers, and {value!r} is not "
                "one"
            ) from None
    else:
        same = column.cast(pl.String) == _text(value)
    return same.fill_null(False).to_numpy()


def _text(value: Any) -> str:
    """1995 and 1995.0 are the category "1995"."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _suggestion(column: pl.Series, value: Any) -> str:
    if column.dtype.is_numeric():
        return ""
    values = column.explode() if isinstance(column.dtype, pl.List) else column
    known = {name.casefold(): name for name in values.drop_nulls().unique().cast(pl.String)}
    close = get_close_matches(_text(value).casefold(), known, 1)
    return f"; did you mean {known[close[0]]!r}?" if close else ""


def _as_list(values: Any) -> list[Any]:
    return [values] if isinstance(values, str | int | float) else list(values)


def _unknown(name: str, index: NDArray[np.int64] | None) -> list[str]:
    unknown = 0 if index is None else int((index < 1).sum())
    if index is None or not unknown:
        return []
    return [f"{unknown:,} of the {len(index):,} items of {name} are not known to the model"]
