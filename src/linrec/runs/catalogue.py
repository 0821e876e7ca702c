"""The items of a run, in index order, so that it recommends without its dataset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.similarity import ItemSimilarity, similarity_of
from linrec.data.dataset.store import SequenceStore
from linrec.scoring import HIDDEN

TRAINED = "training_events"


@dataclass(frozen=True)
class Catalogue:
    """The items a model knows: ids, titles, features, and how often each occurred."""

    table: pl.DataFrame  # item, events, training_events, and the rest of the dataset's item table
    # [n_items + 1, any width], PAD first, as given; None: the model reads no item vectors
    vectors: NDArray[np.float32] | None = None
    added: int = 0  # the last ones, which a server was given later and placed by what it was told

    @classmethod
    def of(
        cls,
        store: SequenceStore,
        trained: NDArray[np.int64] | None = None,
        vectors: NDArray[np.float32] | None = None,
    ) -> Catalogue:
        """trained: events of each item that were trained on, [n_items + 1]; None: all of them."""
        events = store.popularity()
        counts = {"events": events, TRAINED: events if trained is None else trained}
        columns = [pl.Series(name, values[1:]) for name, values in counts.items()]
        return cls(store.item_table.with_columns(columns), vectors)

    @cached_property
    def untrained(self) -> Tensor | None:
        """[n_items + 1], True on items that the model learned nothing about; None: none.

        They have neither a training event nor a vector, and were not added later.
        """
        if self.cold is None:
            return None
        unplaced = self.cold.clone()
        if self.vectors is not None:
            unplaced &= ~torch.from_numpy((self.vectors != 0).any(1))
        unplaced[len(unplaced) - self.added :] = False
        return unplaced if unplaced.any() else None

    @property
    def cold(self) -> Tensor | None:
        """[n_items + 1], True on items without a training event; None if there are none."""
        if TRAINED not in self.table.columns:  # in runs of early versions
            return None
        none = np.concatenate([[False], self.table[TRAINED].to_numpy() == 0])
        return torch.from_numpy(none) if none.any() else None

    def after_all(self) -> Catalogue:
        """The same after a training on all events."""
        return Catalogue(self.table.with_columns(pl.col("events").alias(TRAINED)), self.vectors)

    @cached_property
    def ids(self) -> IdMap:
        return IdMap(self.table["item"], first=1)

    @property
    def titles(self) -> pl.Series | None:
        return self.table["title"] if "title" in self.table.columns else None

    @cached_property
    def similarity(self) -> ItemSimilarity | None:
        """How alike the items are; None if they have neither features nor vectors."""
        return similarity_of(self.table, self.vectors)

    def cold_start_scores(self) -> Tensor:
        """Scores for users without a known item: events of each item, [n_items + 1] float32.

        What the model does not recommend to others is not recommended to them.
        """
        counts = self.table["events"].to_numpy()
        scores = torch.from_numpy(np.concatenate([[HIDDEN], counts])).float()
        return scores if self.untrained is None else scores.masked_fill(self.untrained, HIDDEN)

    def __len__(self) -> int:
        return len(self.table)
