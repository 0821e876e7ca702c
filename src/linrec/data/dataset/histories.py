"""The histories to recommend for: of users of a dataset, or given as lists of items."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.data.dataset.context import Codes
from linrec.data.dataset.ids import IdMap
from linrec.data.dataset.sequences import IntArray, Sequences
from linrec.data.dataset.store import SequenceStore
from linrec.types import PAD, InputError

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Histories:
    """Named histories in the indices of one catalogue."""

    names: pl.Series  # the user's id, or the row number of a given history
    sequences: Sequences
    skipped: int = 0  # events whose item the catalogue does not know
    unknown_users: int = 0
    newest: float = math.nan  # the time of the newest event in the log

    def __len__(self) -> int:
        return len(self.names)

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever requested them should know."""
        notes = []
        if self.skipped:
            notes.append(f"skipped {self.skipped:,} events with items the model does not know")
        if self.unknown_users:
            notes.append(f"{self.unknown_users:,} of the requested users are not in the dataset")
        empty = int((self.sequences.lengths == 0).sum())
        if empty:
            notes.append(f"{empty:,} without any known item got the most popular items instead")
        return tuple(notes)


def of_items(
    rows: Iterable[Iterable[Any]],
    catalogue: IdMap,
    times: Iterable[Iterable[float]] | None = None,
    context: Sequence[Sequence[int]] | None = None,
) -> Histories:
    """Given lists of item ids, oldest first; unknown items are left out and counted.

    times: those of the same events, in seconds, NaN where unknown. context: their codes, end to
    end.
    """
    lists = [list(row) for row in rows]
    lengths = np.array([len(items) for items in lists], dtype=np.int64)
    flat = [item for items in lists for item in items]
    index = catalogue.index_of(flat)
    clock = None if times is None else np.array([time for row in times for time in row], float)
    codes = np.array(context, np.int32) if context else None
    sequences, skipped = _without_unknown(index, lengths, clock, codes)
    return Histories(pl.Series("user", np.arange(len(lists))), sequences, skipped, 0, _last(clock))


def of_users(
    users: Sequence[Any] | pl.Series | None, store: SequenceStore, catalogue: IdMap
) -> Histories:
    """Users of a dataset by their own ids (None: all of them), in the given order.

    The dataset may be newer than the one the model was trained on: items are matched by id. An
    unknown user gets an empty history, but if all users are unknown it is an error.
    """
    rows = np.arange(store.n_users) if users is None else store.users.index_of(users)
    known = rows >= 0
    if users is not None and len(rows) and not known.any():
        raise InputError(
            f"user {users[0]!r} is not in the dataset"
            + (f", nor is any other of the {len(rows):,} given" if len(rows) > 1 else "")
            + "; check the id, or give the events themselves as a history"
        )
    names = store.users.ids if users is None else _names(users, rows, store.users)
    whole = store.sequences()
    chosen = whole.take(np.where(known, rows, 0))
    chosen = replace(chosen, ends=np.where(known, chosen.ends, chosen.starts))
    unknown = int(np.count_nonzero(~known))
    if catalogue.ids.equals(store.catalogue.ids):
        return Histories(names, chosen, 0, unknown, store.newest)
    translation = np.concatenate([[PAD], catalogue.index_of(store.catalogue.ids)])
    flat = np.concatenate([np.empty(0, np.int32), *(chosen[row] for row in range(len(chosen)))])
    clock = chosen.flat_times()
    codes = chosen.flat_context()
    sequences, skipped = _without_unknown(translation[flat], chosen.lengths, clock, codes)
    return Histories(names, sequences, skipped, unknown, store.newest)


def _names(users: Sequence[Any] | pl.Series, rows: IntArray, ids: IdMap) -> pl.Series:
    """The ids in the dataset's type where possible, because a command line has only strings."""
    if (rows >= 0).all():
        return ids.ids_of(rows).alias("user")
    text = pl.Series("user", [str(user) for user in users])
    typed = text.cast(ids.ids.dtype, strict=False)
    return text if typed.has_nulls() else typed


def _last(times: Times | None) -> float:
    return math.nan if times is None or not len(times) else float(np.fmax.reduce(times))


def _without_unknown(
    index: IntArray, lengths: IntArray, times: Times | None, context: Codes | None
) -> tuple[Sequences, int]:
    """Rows end to end, without the unknown items."""
    known = index > PAD
    owner = np.repeat(np.arange(len(lengths)), lengths)
    left = np.bincount(owner[known], minlength=len(lengths)).astype(np.int64)
    ends = np.cumsum(left)
    clock = None if times is None else times[known]
    codes = None if context is None else context[known]
    items = index[known].astype(np.int32)
    sequences = Sequences(items, ends - left, ends, clock, context=codes)
    return sequences, int((~known).sum())
