"""A few users in a report: what they had last, and what is recommended to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from linrec.data.dataset.store import SequenceStore
from linrec.types import Recommendations

USERS, LAST_EVENTS, ITEMS = 3, 5, 5


@dataclass(frozen=True, slots=True)
class Sample:
    user: str
    history: str  # the last items, oldest first
    rows: list[dict[str, Any]]  # of `Recommendations`


def sample_users(store: SequenceStore) -> pl.Series:
    """Some users from the beginning, the middle and the end of the dataset, always the same."""
    rows = np.unique(np.linspace(0, store.n_users - 1, USERS).astype(np.int64))
    return store.users.ids_of(rows)


def samples_of(store: SequenceStore, recommended: Recommendations) -> list[Sample]:
    """One per user that has any recommendation, in their order."""
    parts = recommended.table.partition_by("user", maintain_order=True)
    return [
        Sample(str(part["user"][0]), last_events(store, part["user"][0]), part.to_dicts())
        for part in parts
    ]


def last_events(store: SequenceStore, user: Any) -> str:
    """The last items of a user, by their titles where they have one."""
    row = int(store.users.index_of([user])[0])
    last = np.asarray(store.sequences()[row][-LAST_EVENTS:])
    ids = store.catalogue.ids_of(last).cast(pl.String)
    if "title" not in store.item_table.columns:
        return ", ".join(ids)
    titles = store.item_table["title"].gather(last - 1)
    return ", ".join(title or name for title, name in zip(titles, ids, strict=True))
