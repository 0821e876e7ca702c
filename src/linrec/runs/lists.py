"""Lists of recommendations for many histories at once: scores, filters, the k best, a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from linrec.data.dataset.histories import Histories
from linrec.data.dataset.sequences import IntArray
from linrec.evaluation import RankOptions
from linrec.evaluation.ranks import ProgressCallback, Scorer, batches
from linrec.evaluation.reranking import Reranker, lists_of
from linrec.runs.catalogue import Catalogue
from linrec.runs.filters import Allowed
from linrec.scoring import HIDDEN, hide_seen
from linrec.types import COLD_START, PAD


@dataclass(frozen=True)
class ListMaker:
    """What a list may hold, and how long it is."""

    catalogue: Catalogue
    k: int
    hidden: bool  # whether items of the history are left out
    allowed: Allowed
    reranker: Reranker | None = None  # None: by the scores alone
    reads: int | None = None  # newest events of a history that the model reads; None: all

    def lists(
        self, scorer: Scorer, histories: Histories, progress: ProgressCallback | None = None
    ) -> pl.DataFrame:
        """One row per recommendation, with the row of its history."""
        nobody, nothing = np.empty(0, np.int64), np.empty((0, self.k), np.float32)
        tables = [self._table(histories, nobody, nothing.astype(np.int64), nothing)]
        done, options = 0, RankOptions(reads=self.reads)
        for rows in batches(histories.sequences.lengths, len(self.catalogue), options):
            tables.append(self._top(scorer, histories, rows))
            done += len(rows)
            if progress is not None:
                progress(done, len(histories))
        return pl.concat(tables).sort("row", "rank")

    def _top(self, scorer: Scorer, histories: Histories, rows: IntArray) -> pl.DataFrame:
        chosen = histories.sequences.take(rows)
        with torch.inference_mode():
            scores = scorer(chosen)
            empty = torch.from_numpy(chosen.lengths == 0)
            scores[empty] = self.catalogue.cold_start_scores().to(scores.dtype)
            if self.allowed.items is not None:
                scores[:, torch.from_numpy(~self.allowed.items)] = HIDDEN
            shown = hide_seen(scores, chosen) if self.hidden else scores
            lists = lists_of(shown, self.k, self.reranker)
        return self._table(histories, rows, lists.items, lists.scores.astype(np.float32))

    def _table(
        self, histories: Histories, rows: IntArray, items: IntArray, scores: NDArray[np.float32]
    ) -> pl.DataFrame:
        """The recommendations for some of the histories: rows [R], items and scores [R, k]."""
        position, rank = np.nonzero(items != PAD)
        row, index = rows[position], items[position, rank]
        empty = histories.sequences.lengths[row] == 0
        columns = {
            "row": row,
            "user": histories.names.gather(row),
            "rank": rank + 1,
            "item": self.catalogue.ids.ids_of(index),
            "score": scores[position, rank],
            "source": pl.Series(np.where(empty, COLD_START, "model"), dtype=pl.String),
        }
        if self.catalogue.titles is not None:
            columns["title"] = self.catalogue.titles.gather(index - 1)
        return pl.DataFrame(columns)
