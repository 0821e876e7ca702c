"""Baselines that any model must beat: popularity, and what usually follows the last item.

Both count the training part of the split only; a test history may end in the validation event, but
that event is never counted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from linrec.data.dataset.sequences import Sequences, events_of
from linrec.evaluation.ranks import Scorer
from linrec.scoring import HIDDEN
from linrec.types import PAD


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


def popularity(train: Sequences, n_items: int) -> Scorer:
    """Every user gets the items with the most training events."""
    counts = torch.from_numpy(train.item_counts(n_items).astype(np.float64))
    counts[PAD] = HIDDEN

    def score(histories: Sequences) -> Tensor:
        return counts.expand(len(histories), -1)

    return score


def last_item(train: Sequences, n_items: int) -> Scorer:
    """Every user gets the items that most often directly followed their last item.

    Popularity adds less than one count: it breaks ties, and decides alone after an item that
    nothing has followed.
    """
    follows = transition_counts(train, n_items)
    counts = train.item_counts(n_items)
    tie_break = counts / (counts.max() + 1.0)
    tie_break[PAD] = HIDDEN

    def score(histories: Sequences) -> Tensor:
        return torch.from_numpy(follows[_last(histories)].toarray() + tie_break)

    return score


BASELINES: dict[str, Callable[[Sequences, int], Scorer]] = {
    "popularity": popularity,
    "last-item": last_item,
}


def _last(histories: Sequences) -> NDArray[np.int64]:
    """The newest item of each history; PAD, which nothing follows, for an empty one."""
    nonempty = histories.lengths > 0
    last = np.full(len(histories), PAD, np.int64)
    last[nonempty] = histories.items[histories.ends[nonempty] - 1]
    return last
