"""What any model must beat: popularity, and what usually follows the last item.

Both count the training part of the split only; a test history may end in the validation event, but
that event is never counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from linrec.data.dataset.sequences import IntArray, Sequences
from linrec.evaluation.ranks import Scorer
from linrec.scoring import HIDDEN, events_of
from linrec.types import PAD

_EVENTS_AT_A_TIME = 4_000_000


def item_counts(sequences: Sequences, n_items: int) -> IntArray:
    """Events of each item in these sequences, [n_items + 1]."""
    counts = np.zeros(n_items + 1, np.int64)
    for some in _chunks(sequences):
        counts += np.bincount(events_of(some)[1], minlength=n_items + 1)
    return counts


def transition_counts(sequences: Sequences, n_items: int) -> csr_array:
    """How often item b directly follows item a, sparse [n_items + 1, n_items + 1]."""
    shape = (n_items + 1, n_items + 1)
    counts = csr_array(shape, dtype=np.float64)
    for some in _chunks(sequences):
        rows, items = events_of(some)
        same_user = rows[1:] == rows[:-1]
        pairs = (items[:-1][same_user], items[1:][same_user])
        counts = counts + csr_array((np.ones(len(pairs[0])), pairs), shape=shape)
    return counts


def popularity(train: Sequences, n_items: int) -> Scorer:
    """Everybody gets the items with the most training events."""
    counts = torch.from_numpy(item_counts(train, n_items).astype(np.float64))
    counts[PAD] = HIDDEN

    def score(histories: Sequences) -> Tensor:
        return counts.expand(len(histories), -1)

    return score


def last_item(train: Sequences, n_items: int) -> Scorer:
    """Everybody gets what most often directly followed their last item.

    Popularity adds less than one count: it orders the equals, and alone decides after an item that
    nothing has followed.
    """
    follows = transition_counts(train, n_items)
    counts = item_counts(train, n_items)
    tie_break = counts / (counts.max() + 1.0)
    tie_break[PAD] = HIDDEN

    def score(histories: Sequences) -> Tensor:
        return torch.from_numpy(follows[_last(histories)].toarray() + tie_break)

    return score


FLOORS: dict[str, Callable[[Sequences, int], Scorer]] = {
    "popularity": popularity,
    "last-item": last_item,
}


def _last(histories: Sequences) -> NDArray[np.int64]:
    """The newest item of each history, PAD for an empty one: nothing follows PAD."""
    some = histories.lengths > 0
    last = np.full(len(histories), PAD, np.int64)
    last[some] = histories.items[histories.ends[some] - 1]
    return last


def _chunks(sequences: Sequences) -> Iterator[Sequences]:
    """Some rows at a time, so that a large store is never copied as a whole."""
    part = np.cumsum(sequences.lengths) // _EVENTS_AT_A_TIME
    starts = np.flatnonzero(np.diff(part, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(part)], strict=True):
        yield sequences.take(slice(int(start), int(stop)))
