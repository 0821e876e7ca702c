"""The items of a run, in index order, so that it recommends without its dataset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
import torch
from torch import Tensor

from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.store import SequenceStore
from linrec.scoring import HIDDEN


@dataclass(frozen=True)
class Catalogue:
    """The items a model knows: ids, titles, features, and how often each occurred."""

    table: pl.DataFrame  # item, events, and any other columns of the dataset's item table

    @classmethod
    def of(cls, store: SequenceStore) -> Catalogue:
        return cls(store.item_table.with_columns(events=pl.Series(store.popularity()[1:])))

    @cached_property
    def ids(self) -> IdMap:
        return IdMap(self.table["item"], first=1)

    @property
    def titles(self) -> pl.Series | None:
        return self.table["title"] if "title" in self.table.columns else None

    def cold_start_scores(self) -> Tensor:
        """Scores for users without a known item: events of each item, [n_items + 1] float32."""
        counts = self.table["events"].to_numpy()
        return torch.from_numpy(np.concatenate([[HIDDEN], counts])).float()

    def __len__(self) -> int:
        return len(self.table)
