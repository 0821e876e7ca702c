"""How an engine behaves, whatever the model and the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from linrec.types import InputError

Late = Literal["insert", "append", "refuse"]


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    keep_events: int = 100_000
    """The newest events of a user that are kept; older ones are gone, and their ids with them."""

    late: Late = "insert"
    """What becomes of an event older than the user's newest: put where its time says (the state is
    made anew), put at the end as if it came now, or refused."""

    batch_size: int = 64
    """Requests answered together at most."""

    batch_wait: float = 0.0
    """Seconds to wait for company; 0 takes what is there."""

    long_work: int = 2
    """Whole histories worked on at the same time at most: states made anew, explanations."""

    ann_from: int | None = None
    """Items from which on an approximate index (faiss) finds the best ones; None: never."""

    def __post_init__(self) -> None:
        if self.late not in get_args(Late):
            raise InputError(f"late is one of {', '.join(get_args(Late))}, not {self.late!r}")
        for name in ("keep_events", "batch_size", "long_work"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.batch_wait <= 1:
            raise InputError(f"batch_wait is 0 to 1 seconds, not {self.batch_wait}")
