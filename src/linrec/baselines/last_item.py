from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.sparse import csr_array
from torch import Tensor

from linrec.baselines import sparse
from linrec.baselines.baseline import Baseline, FloatArray, newest
from linrec.baselines.config import BaselineConfig, LastItemConfig
from linrec.data.dataset.sequences import Sequences, events_of


def transition_counts(sequences: Sequences, n_items: int) -> csr_array:
    """How often item b directly follows item a, sparse [n_items + 1, n_items + 1]."""
    shape = (n_items + 1, n_items + 1)
    counts = csr_array(shape, dtype=np.float64)
    for chunk in sequences.chunks():
        rows, items = events_of(chunk)
        same_user = rows[1:] == rows[:-1]
        pairs = (items[:-1][same_user], items[1:][same_user])
        counts = counts + csr_array((np.ones(len(pairs[0])), pairs), shape=shape)
    return counts


class Transitions(Baseline):
    """A baseline that counts what follows an item."""

    def __init__(self, config: BaselineConfig, counts: Mapping[str, Tensor]) -> None:
        super().__init__(config, counts)
        self.follows = sparse.from_tensors("follows", counts, self.n_items)

    @classmethod
    def count(cls, train: Sequences, n_items: int, config: BaselineConfig) -> dict[str, Tensor]:
        del config
        return sparse.to_tensors("follows", transition_counts(train, n_items))

    @classmethod
    def count_shapes(cls, n_items: int) -> dict[str, tuple[int, ...] | None]:
        return sparse.shapes("follows", n_items)

    @classmethod
    def check_counts(cls, counts: Mapping[str, Tensor], n_items: int) -> None:
        super().check_counts(counts, n_items)
        sparse.check("follows", counts, n_items)


class LastItem(Transitions):
    """Popularity adds less than one count: it breaks ties, and decides alone after an item that
    nothing has followed.
    """

    Config = LastItemConfig
    definition = "The items that most often directly followed the user's last item."

    def scores(self, histories: Sequences) -> FloatArray:
        return np.asarray(self.follows[newest(histories)].toarray() + self.tie_break)
