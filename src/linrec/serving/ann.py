"""An approximate index over the item vectors, for catalogues too large to score in full."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrec.types import InputError

# links per item, candidates considered when an item is linked, and at least in a search:
# on vectors drawn at random, where neighbours are hardest to find, 0.98 of the ten best of 20,000
LINKS, BUILD_WIDTH, SEARCH_WIDTH = 32, 80, 128
MAX_EXTRA = 256  # items fetched beyond four times k, because some may not be shown


class AnnIndex:
    """A graph of near items (faiss's HNSW): the best by inner product, most of the time."""

    def __init__(self, vectors: Tensor, bias: Tensor | None) -> None:
        """vectors: [n_items + 1, d], row PAD first, which is left out."""
        faiss = _faiss()
        table = vectors if bias is None else torch.cat([vectors, bias[:, None]], 1)
        rows = np.ascontiguousarray(table[1:].numpy(), dtype=np.float32)
        self._has_bias = bias is not None
        self._faiss = faiss
        self._index = faiss.IndexHNSWFlat(rows.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
        self._index.hnsw.efConstruction = BUILD_WIDTH
        self._index.add(rows)

    def search(self, hidden: Tensor, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Item indices (0: there are no more) and scores, [rows, count] each, best first."""
        if self._has_bias:
            hidden = torch.cat([hidden, hidden.new_ones(len(hidden), 1)], 1)
        query = np.ascontiguousarray(hidden.numpy(), dtype=np.float32)
        wide = self._faiss.SearchParametersHNSW(efSearch=max(SEARCH_WIDTH, 2 * count))
        scores, rows = self._index.search(query, count, params=wide)
        return rows + 1, scores


def fetched(k: int, hidden: int) -> int:
    """How many to fetch so that k probably remain after hidden items are removed."""
    return k + min(hidden, 3 * k + MAX_EXTRA)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError(
            "searching approximately needs the package faiss; install it with: "
            "pip install linrec[ann]"
        ) from None
    return faiss
