"""Features of items as small integers, in the vocabulary of one training.

Each item has one code per field, or several in a multi-valued one. The vocabulary is built once,
from the items a model is trained on, and stored with the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import ConfigDict

from linrec.data.dataset.feature import Feature
from linrec.types import InputError, argument

ITEM = "item"
"""The field that every item table has: the item's own id."""

# codes with a meaning in every field; values come after them
NOTHING, MISSING, UNKNOWN, FIRST = 0, 1, 2, 3
# a number becomes the index of its quantile bucket
BUCKETS = 20
# a value of one item only adds nothing to the item's id; it serves to learn "unknown"
MIN_ITEMS = 2
# per item and field, because the width of the code matrix is the maximum over all items
MAX_VALUES = 64


@dataclass(frozen=True)
class Field:
    """A feature and its vocabulary."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    kind: Literal["categorical", "multi", "numeric", "id"]
    values: tuple[str, ...] = ()  # of categories, in the order of their codes
    bounds: tuple[float, ...] = ()  # between the buckets of a number
    items: int = 0  # how many ids there are

    @property
    def size(self) -> int:
        """How many different codes there can be."""
        if self.kind == "id":
            return FIRST + self.items
        return FIRST + (len(self.bounds) + 1 if self.kind == "numeric" else len(self.values))

    def codes(self, table: pl.DataFrame) -> NDArray[np.int32]:
        """[items + 1, values], one row per index of the catalogue, row PAD first."""
        if self.kind == "id":
            rows = np.arange(FIRST, FIRST + len(table))[:, None]
        elif self.kind == "numeric":
            rows = self._buckets(table[self.name])[:, None]
        else:
            rows = self._categories(table[self.name])
        return np.concatenate([np.full((1, rows.shape[1]), NOTHING), rows]).astype(np.int32)

    def value_codes(self, column: pl.Series) -> NDArray[np.int32]:
        """[rows], the code of one value each; null or NaN is missing."""
        if self.kind == "numeric":
            return self._buckets(column).astype(np.int32)
        return self._categories(column)[:, 0].astype(np.int32)

    def _buckets(self, numbers: pl.Series) -> NDArray[np.int64]:
        values = numbers.cast(pl.Float64).fill_null(np.nan).to_numpy()
        codes = FIRST + np.searchsorted(np.array(self.bounds), values, side="right")
        return np.where(np.isnan(values), MISSING, codes)

    def _categories(self, column: pl.Series) -> NDArray[np.int64]:
        codes = pl.int_range(FIRST, FIRST + len(self.values), eager=True)
        known = pl.DataFrame({"value": pl.Series(self.values, dtype=pl.String), "code": codes})
        matches = (
            _values(column)
            .join(known, on="value", how="left")
            .select("row", pl.col("code").fill_null(UNKNOWN))
            .unique()
            .sort("row", "code")
            .with_columns(position=pl.int_range(pl.len()).over("row"))
            .filter(pl.col("position") < MAX_VALUES)
        )
        widest = 1 + (0 if matches.is_empty() else int(matches["position"].max()))  # type: ignore[arg-type]
        rows = np.full((len(column), widest), NOTHING, dtype=np.int64)
        rows[:, 0] = MISSING
        rows[matches["row"], matches["position"]] = matches["code"]
        return rows


@dataclass(frozen=True, eq=False)
class ItemFeatures:
    """What a backbone knows about its items: how many, and their features as codes.

    And what it reads of an event besides its item and time: the fields of its context.
    """

    n_items: int
    fields: tuple[Field, ...] = ()
    codes: tuple[NDArray[np.int32], ...] = ()  # of each field, [n_items + 1, values]
    context: tuple[Field, ...] = ()  # of events, not of items
    vectors: NDArray[np.float32] | None = None  # [n_items + 1, any width], PAD first

    def same_as(self, other: ItemFeatures) -> bool:
        parts = [(each.n_items, each.fields, each.context) for each in (self, other)]
        if parts[0] != parts[1] or (self.vectors is None) != (other.vectors is None):
            return False
        if self.vectors is not None and not np.array_equal(self.vectors, other.vectors):  # type: ignore[arg-type]
            return False
        return all(map(np.array_equal, self.codes, other.codes))

    @classmethod
    def of(
        cls,
        table: pl.DataFrame,
        fields: Sequence[Field],
        context: Sequence[Field] = (),
        vectors: NDArray[np.float32] | None = None,
    ) -> ItemFeatures:
        """table: one row per item, in index order.  vectors: those that the model reads."""
        codes = tuple(field.codes(table) for field in fields)
        return cls(len(table), tuple(fields), codes, tuple(context), vectors)

    @classmethod
    def ids(cls, n_items: int) -> ItemFeatures:
        """For items without features: the id is the only field."""
        field = Field(ITEM, "id", items=n_items)
        return cls.of(pl.DataFrame({ITEM: np.arange(n_items)}), [field])


def choose_fields(
    table: pl.DataFrame,
    features: Sequence[Feature],
    names: Sequence[str] | None,
    log: Callable[[str], None] | None = None,
) -> tuple[Field, ...]:
    """The fields of these names with their vocabularies; None takes all that are of use.

    If there are none, the item's own id is the only field. `log` gets a message for each feature
    that is left out.
    """
    usable = [feature for feature in features if feature.kind != "text"]
    if names is None:
        fields = [learn_field(table, feature) for feature in usable]
        constant = [field for field in fields if _is_constant(field, table)]
        for field in constant:
            if log is not None:
                log(f"the feature {field.name} {NO_DIFFERENCE}: left out")
        return tuple(field for field in fields if field not in constant) or (
            learn_field(table, None),
        )
    chosen = dict.fromkeys(_named(name, features, usable) for name in names)
    fields = [learn_field(table, feature) for feature in chosen]
    for field in fields:
        if _is_constant(field, table):
            raise InputError(f"the feature {field.name} {NO_DIFFERENCE}; leave it out")
    return tuple(fields)


NO_DIFFERENCE = (
    "tells no item from another (a category counts if two items share it; prepare it with the kind "
    "numeric if it holds numbers)"
)


def _is_constant(field: Field, table: pl.DataFrame) -> bool:
    codes = field.codes(table)[1:]
    return field.kind != "id" and not (codes != codes[:1]).any()


def _named(name: str, features: Sequence[Feature], usable: Sequence[Feature]) -> Feature | None:
    """The feature of that name, else the only one with that word: year for release_year."""
    if name == ITEM:
        return None
    known = ", ".join([*(feature.name for feature in usable), ITEM])
    exact = [feature for feature in features if feature.name == name]
    if exact and exact[0] not in usable:
        raise InputError(f"{name} is text, which no backbone reads; choose from {known}")
    matches = exact or [feature for feature in usable if _words(name) <= _words(feature.name)]
    if len(matches) == 1:
        return matches[0]
    if not usable:
        raise InputError(
            f"the dataset has no feature {name!r} nor any other; prepare it again with "
            f"{argument('items')} set to a file of items, or leave {argument('features')} out"
        )
    reason = "fits several features" if matches else "is not a feature of the dataset"
    raise InputError(f"{name!r} {reason}; choose from {known}")


def _words(name: str) -> set[str]:
    return {word.removesuffix("s") for word in re.split(r"[\W_]+", name.lower())}


def learn_field(table: pl.DataFrame, feature: Feature | None) -> Field:
    """A feature with its vocabulary; None stands for the item's own id."""
    if feature is None:
        return Field(ITEM, "id", items=len(table))
    column = table[feature.name]
    if feature.kind == "numeric":
        return Field(feature.name, "numeric", bounds=_bounds(column))
    counts = _values(column).unique().group_by("value").len()
    shared = counts.filter(pl.col("len") >= MIN_ITEMS)["value"]
    kind: Literal["categorical", "multi"] = "multi" if feature.kind == "multi" else "categorical"
    return Field(feature.name, kind, values=tuple(shared.sort()))


def _bounds(numbers: pl.Series) -> tuple[float, ...]:
    values = numbers.cast(pl.Float64).drop_nulls().to_numpy()
    values = values[np.isfinite(values)]
    if not len(values):
        return ()
    inner = np.quantile(values, np.arange(1, BUCKETS) / BUCKETS)
    return tuple(float(bound) for bound in np.unique(inner) if bound > values.min())


def _values(column: pl.Series) -> pl.DataFrame:
    """row, value: one row per value of an item; items without values have none."""
    texts = column if isinstance(column.dtype, pl.List) else column.cast(pl.String)
    frame = pl.DataFrame({"row": np.arange(len(column)), "value": texts})
    if isinstance(column.dtype, pl.List):
        frame = frame.explode("value").cast({"value": pl.String})
    return frame.drop_nulls("value")
