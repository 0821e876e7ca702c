from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from scipy import sparse as scipy_sparse
from scipy.sparse import csr_array
from torch import Tensor

from linrec.baselines import sparse
from linrec.baselines.baseline import Baseline, FloatArray
from linrec.baselines.config import BaselineConfig, ItemKNNConfig
from linrec.data.dataset.sequences import Sequences, events_of
from linrec.types import InputError

CELLS = 1 << 24  # items x items that are held at once
TIE_BREAK = 1e-6  # popularity adds at most this to a score


def who_had_what(histories: Sequences, n_items: int) -> csr_array:
    """1 where a row has an item, however often, sparse [rows, n_items + 1] float64."""
    rows, items = events_of(histories)
    shape = (len(histories), n_items + 1)
    matrix = csr_array((np.ones(len(rows)), (rows, items)), shape=shape)
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


class ItemKNN(Baseline):
    """score(item) = sum over the items of the history of their cosine with it, where it is among
    their nearest neighbours. The cosine is of the users who had them.
    """

    Config = ItemKNNConfig
    definition = (
        "The items that the same users had as those in the user's history: the sum of the cosines "
        "of nearest neighbours."
    )
    costly = True

    def __init__(self, config: BaselineConfig, counts: Mapping[str, Tensor]) -> None:
        super().__init__(config, counts)
        self.neighbours = sparse.from_tensors("neighbours", counts, self.n_items)

    @classmethod
    def count(cls, train: Sequences, n_items: int, config: BaselineConfig) -> dict[str, Tensor]:
        assert isinstance(config, ItemKNNConfig)
        had = who_had_what(train, n_items)
        blocks = [nearest(block, config.neighbours) for block in _cosines(had)]
        neighbours = csr_array(scipy_sparse.vstack(blocks, format="csr"))
        if not neighbours.nnz:
            raise InputError(
                "no user has two different items to train on, so no two items are similar; "
                "choose another baseline"
            )
        return sparse.to_tensors("neighbours", neighbours.astype(np.float32))

    @classmethod
    def count_shapes(cls, n_items: int) -> dict[str, tuple[int, ...] | None]:
        return sparse.shapes("neighbours", n_items)

    @classmethod
    def check_counts(cls, counts: Mapping[str, Tensor], n_items: int) -> None:
        super().check_counts(counts, n_items)
        sparse.check("neighbours", counts, n_items)

    def scores(self, histories: Sequences) -> FloatArray:
        had = who_had_what(histories, self.n_items)
        return np.asarray((had @ self.neighbours).toarray() + TIE_BREAK * self.tie_break)

    def similar(self, item: int) -> Tensor:
        return torch.from_numpy(self.neighbours[[item]].toarray()[0])


def _cosines(had: csr_array) -> Iterator[csr_array]:
    """Of all pairs of different items, some rows at a time."""
    users = np.asarray(had.sum(axis=0), np.float64)
    unit = csr_array(had.multiply(1.0 / np.sqrt(np.maximum(users, 1.0))[None]))
    columns = unit.tocsc()
    n, step = had.shape[1], max(1, CELLS // had.shape[1])
    for start in range(0, n, step):
        block = csr_array(columns[:, start : start + step].T @ unit).tocoo()
        other = block.row + start != block.col
        shape = (min(step, n - start), n)
        yield csr_array((block.data[other], (block.row[other], block.col[other])), shape=shape)


def nearest(block: csr_array, count: int) -> csr_array:
    """The largest entries of each row; of equal ones those of the first columns."""
    entries = block.tocoo()
    order = np.lexsort((entries.col, -entries.data, entries.row))
    row = entries.row[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    kept = order[place < count]
    picked = (entries.data[kept], (entries.row[kept], entries.col[kept]))
    return csr_array(picked, shape=block.shape)
