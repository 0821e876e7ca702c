"""An approximate index over the item vectors, for catalogues too large to score in full."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrec.types import InputError

# of the cells that k-means makes, the share that a search looks into
PROBED = 1 / 8
MOST_EXTRA = 256  # items fetched beyond four times k, because some may not be shown


class AnnIndex:
    """Inverted lists by k-means (faiss): the best items by inner product, most of the time."""

    def __init__(self, vectors: Tensor, bias: Tensor | None) -> None:
        """vectors: [n_items + 1, d], row PAD first, which is left out."""
        faiss = _faiss()
        table = vectors if bias is None else torch.cat([vectors, bias[:, None]], 1)
        rows = np.ascontiguousarray(table[1:].numpy(), dtype=np.float32)
        cells = max(isqrt(len(rows)), 1)
        self._has_bias = bias is not None
        quantizer = faiss.IndexFlatIP(rows.shape[1])
        metric = faiss.METRIC_INNER_PRODUCT
        self._index = faiss.IndexIVFFlat(quantizer, rows.shape[1], cells, metric)
        self._index.train(rows)
        self._index.add(rows)
        self._index.nprobe = max(round(cells * PROBED), 1)

    def search(self, hidden: Tensor, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Item indices (0: no more were found) and scores, [rows, count] each, best first."""
        if self._has_bias:
            hidden = torch.cat([hidden, hidden.new_ones(len(hidden), 1)], 1)
        query = np.ascontiguousarray(hidden.numpy(), dtype=np.float32)
        scores, places = self._index.search(query, count)
        return places + 1, scores


def fetched(k: int, hidden: int) -> int:
    """How many to fetch so that k are probably left when what may not be shown is gone."""
    return k + min(hidden, 3 * k + MOST_EXTRA)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError(
            "searching approximately needs the package faiss; install it with: "
            "pip install linrec[ann]"
        ) from None
    return faiss
