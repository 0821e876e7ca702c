"""Which events a condition on their context holds for, as type=purchase or rating>=4."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.dataset.context import ContextColumn, chosen_columns
from linrec.types import InputError, argument

_WRITTEN = re.compile(r"^\s*(?P<name>.+?)\s*(?P<sign>>=|<=|!=|=|>|<)\s*(?P<value>.*?)\s*$")
_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """What the context of an event must be: one of some values, or on one side of a number."""

    name: str
    sign: str
    value: str

    @classmethod
    def parse(cls, text: str, setting: str) -> Condition:
        """setting: where it was given, for an error."""
        found = _WRITTEN.match(text)
        if found is None or not found["value"]:
            raise InputError(
                f"{argument(setting, text)} is not a condition such as type=purchase, "
                "type=purchase|cart, type!=view or rating>=4"
            )
        condition = cls(found["name"], found["sign"], found["value"])
        if condition.sign in _ORDER and condition._number() is None:
            raise InputError(
                f"{argument(setting, text)} compares with {condition.value!r}, which is no number; "
                f"give one, or use {condition.name}={condition.value}"
            )
        return condition

    def holds(self, columns: Sequence[ContextColumn], where: str) -> NDArray[np.bool_]:
        """[events]; of an event without a value it never holds. `where` names the dataset."""
        (column,) = chosen_columns(columns, [self.name], where)
        if self.sign in _ORDER:
            return self._compared(column, where)
        wanted = [each.strip() for each in self.value.split("|")]
        hits = _one_of(column, wanted, where)
        if self.sign == "=":
            return hits
        return ~hits & column.given()

    def _number(self) -> float | None:
        try:
            return float(self.value)
        except ValueError:
            return None

    def _compared(self, column: ContextColumn, where: str) -> NDArray[np.bool_]:
        numbers = column.texts().cast(pl.Float64, strict=False)
        if column.categories is not None and numbers.null_count() > int((~column.given()).sum()):
            raise InputError(
                f"the context column {column.name!r} of {where} is not made of numbers, so "
                f"{self.name}{self.sign}{self.value} cannot be said of it; choose its values with ="
            )
        values = numbers.fill_null(np.nan).to_numpy()
        return np.asarray(_ORDER[self.sign](values, self._number()), np.bool_)


def _one_of(column: ContextColumn, wanted: Sequence[str], where: str) -> NDArray[np.bool_]:
    if column.categories is None:
        numbers = pl.Series(wanted).cast(pl.Float64, strict=False)
        if numbers.has_nulls():
            raise InputError(
                f"the context column {column.name!r} of {where} holds numbers, not "
                f"{'|'.join(wanted)!r}; give a number"
            )
        return np.isin(column.values, numbers.to_numpy())
    known = column.categories.to_list()
    strange = [value for value in wanted if value not in known]
    if strange:
        shown = ", ".join(known[:20]) + (" ..." if len(known) > 20 else "")
        raise InputError(
            f"no event of {where} has the {column.name} {strange[0]!r}; choose from {shown}"
        )
    return np.isin(column.values, [known.index(value) for value in wanted])
