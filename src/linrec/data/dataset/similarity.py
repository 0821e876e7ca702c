"""How alike two items are: the cosine of what their features have in common, or of their vectors.

Of features, each one an item has is a part of its vector: 1 at its value (a number: at its quantile
bucket), at several values 1 / sqrt(number of them) each. The vector is scaled to length 1, so that
the cosine of two items with the same fields filled is the mean over the fields of the share of
values in common. An item without any value has the zero vector and is similar to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.dataset.feature import Feature, FeatureKind
from linrec.data.dataset.item_features import FIRST, Field, learn_field
from linrec.data.dataset.sequences import IntArray

Vectors = NDArray[np.float32]

NOT_COMPARED = ("item", "title", "events", "training_events")
"""Columns of an item table that do not say what an item is like."""
MAX_VALUES = 64_000_000  # of the matrix: 256 MB
MIN_WIDTH, MAX_WIDTH = 32, 1_024


@dataclass(frozen=True, slots=True, eq=False)
class ItemSimilarity:
    """A vector of length 1, or 0, for each item."""

    vectors: Vectors  # [n_items + 1, d]
    by: tuple[str, ...]  # what the items are compared by, in words

    def between(self, left: IntArray, right: IntArray) -> Vectors:
        """Cosines of each item of a row with each of the other: [B, P], [B, Q] -> [B, P, Q]."""
        return np.asarray(self.vectors[left] @ self.vectors[right].transpose(0, 2, 1))


def similarity_of(
    table: pl.DataFrame, vectors: NDArray[np.floating] | None = None
) -> ItemSimilarity | None:
    """By all features of the table, else by the given vectors; None if there is neither.

    table: one row per item, in index order.  vectors: [n_items + 1, d], row PAD first.
    """
    fields = [_field(table, name) for name in table.columns if name not in NOT_COMPARED]
    told = [(field, field.codes(table)) for field in fields if field is not None]
    parts = {field.name: codes for field, codes in told if (codes[1:] != codes[1:2]).any()}
    if not parts and vectors is not None:
        return ItemSimilarity(_unit(np.array(vectors, np.float32)), ("item vectors",))
    if not parts:
        return None
    room = min(max(MAX_VALUES // (len(table) + 1), MIN_WIDTH), MAX_WIDTH) // len(parts)
    columns = [_one_hot(codes, max(room, 1)) for codes in parts.values()]
    return ItemSimilarity(_unit(np.concatenate(columns, axis=1)), tuple(parts))


def _field(table: pl.DataFrame, name: str) -> Field | None:
    """The column as a field; None if it holds neither categories nor numbers."""
    dtype = table[name].dtype
    kind: FeatureKind = "categorical"
    if isinstance(dtype, pl.List):
        kind = "multi"
    elif dtype.is_numeric():
        kind = "numeric"
    elif dtype.is_nested() or dtype.is_temporal():
        return None
    return learn_field(table, Feature(name, kind))


def _one_hot(codes: NDArray[np.int32], width: int) -> Vectors:
    """One column per value, of the most common ones if there are more than `width`."""
    known = codes[codes >= FIRST]
    values, counts = np.unique(known, return_counts=True)
    values = np.sort(values[np.argsort(-counts, kind="stable")[:width]])
    rows, positions = np.nonzero(np.isin(codes, values))
    columns = np.searchsorted(values, codes[rows, positions])
    one_hot = np.zeros((len(codes), len(values)), np.float32)
    one_hot[rows, columns] = 1.0
    return _unit(one_hot)


def _unit(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0))
