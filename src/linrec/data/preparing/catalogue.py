"""The items of a dataset: those of the events, and what else is known of items."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from linrec.data.dataset.ids import IdMap
from linrec.data.preparing.features import ItemTable, item_table
from linrec.data.preparing.options import PrepareOptions
from linrec.data.preparing.vectors import PlacedVectors, place_vectors, read_vectors
from linrec.data.reading.events import ReadInfo


@dataclass(frozen=True, slots=True)
class Catalogue:
    ids: IdMap
    table: ItemTable
    vectors: PlacedVectors | None = None


def catalogue_of(items: pl.Series, read: ReadInfo, options: PrepareOptions) -> Catalogue:
    """items: the ids that have events, in the order of their indices."""
    ids, vectors = IdMap(items, first=1), None
    if options.item_vectors is not None:
        found = read_vectors(options.item_vectors, read.columns["item"], options.max_expansion)
        vectors = place_vectors(found, ids)
        ids = vectors.catalogue
    given = options.items if options.items is not None else read.items_beside
    return Catalogue(ids, item_table(ids, given, read.columns["item"], options), vectors)
