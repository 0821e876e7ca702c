"""Leave-one-out by time: the last event is for test, the one before it for validation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from linrec.data.dataset.sequences import IntArray, Sequences
from linrec.types import InputError

Part = Literal["valid", "test"]

# one event to start from, one to validate and one to test
EVENTS_TO_SPLIT = 3


@dataclass(frozen=True, slots=True)
class Holdout:
    """One held-out event per user, with everything that came before it."""

    users: IntArray  # [rows], index into the store's users
    histories: Sequences  # all events before the target
    targets: IntArray  # [rows], the item that came next
    at: NDArray[np.float64] | None = None  # [rows], when it came; None without real times

    def __len__(self) -> int:
        return len(self.users)

    def at_unknown_times(self) -> Holdout:
        """The same for a model that is not given the time of the request."""
        return replace(self, histories=replace(self.histories, until=None))


@dataclass(frozen=True, slots=True)
class Split:
    train: Sequences  # one row per user; a user too short to hold anything out trains on all events
    valid: Holdout
    test: Holdout

    def part(self, name: Part) -> Holdout:
        return self.valid if name == "valid" else self.test


def leave_one_out(sequences: Sequences) -> Split:
    """Split each user's own sequence; the test history contains the validation event."""
    long_enough = sequences.lengths >= EVENTS_TO_SPLIT
    if not long_enough.any():
        raise InputError(
            f"no user has {EVENTS_TO_SPLIT} events, the minimum to validate and test on one each; "
            "give a longer log or loosen the filters of `linrec prepare`"
        )
    train = replace(sequences, ends=sequences.ends - np.where(long_enough, 2, 0), until=None)
    users = np.flatnonzero(long_enough).astype(np.int64)
    evaluated = sequences.take(users)
    return Split(train, _hold_out(evaluated, users, 2), _hold_out(evaluated, users, 1))


def _hold_out(sequences: Sequences, users: IntArray, from_end: int) -> Holdout:
    target = sequences.ends - from_end
    histories = sequences.before(target)
    return Holdout(users, histories, sequences.items[target].astype(np.int64), histories.until)
