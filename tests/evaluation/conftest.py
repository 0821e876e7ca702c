"""Small stores whose right answers can be worked by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.store import SequenceStore

StoreMaker = Callable[..., SequenceStore]


@pytest.fixture(scope="session")
def make_store() -> StoreMaker:
    """Rows of item indices -> a store in memory; users are u0, u1, ... and items 101, 102, ..."""

    def make(rows: list[list[int]], n_items: int | None = None) -> SequenceStore:
        lengths = [len(row) for row in rows]
        flat = np.array([item for row in rows for item in row], dtype=np.int32)
        ids = pl.Series("item", range(101, 101 + (n_items or int(flat.max()))), dtype=pl.Int64)
        return SequenceStore(
            items=flat,
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            times=np.arange(len(flat), dtype=np.float64),
            users=IdMap(pl.Series([f"u{row}" for row in range(len(rows))]), first=0),
            catalogue=IdMap(ids, first=1),
            item_table=pl.DataFrame({"item": ids}),
            features=(),
            summary={},
        )

    return make


@pytest.fixture(scope="session")
def random_store(make_store: StoreMaker) -> StoreMaker:
    """A store of random users; popular items have the low indices."""

    def make(seed: int = 0, n_users: int = 40, n_items: int = 30) -> SequenceStore:
        rng = np.random.default_rng(seed)
        weights = 1.0 / np.arange(1, n_items + 1)
        lengths = rng.integers(1, 25, n_users)
        lengths[0] = 5  # somebody can always be split
        rows = [
            (1 + rng.choice(n_items, length, p=weights / weights.sum())).tolist()
            for length in lengths
        ]
        return make_store(rows, n_items)

    return make
