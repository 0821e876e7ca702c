"""What an engine is asked and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from linrec.serving.stores import Event
from linrec.types import InputError

Source = Literal["model", "popular"]
StateWord = Literal["current", "stale", "none"]


@dataclass(frozen=True, slots=True)
class Item:
    item: str
    title: str | None
    score: float


@dataclass(frozen=True, slots=True)
class Answer:
    user: str | None
    source: Source
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """For a user of the store or for a given history, oldest item first."""

    user: str | None = None
    history: Sequence[str] | None = None
    k: int = 10
    exclude: Sequence[str] = ()
    only: Sequence[str] | None = None
    keep_seen: bool = False

    def __post_init__(self) -> None:
        if (self.user is None) == (self.history is None):
            raise InputError("say for whom: a user or a history, one of the two")
        if self.k < 1:
            raise InputError(f"k must be at least 1, not {self.k}")


@dataclass(frozen=True, slots=True)
class Contribution:
    item: str
    title: str | None
    contribution: float


@dataclass(frozen=True, slots=True)
class Explanation:
    item: str
    score: float
    events: tuple[Contribution, ...]  # the newest the model knows, oldest first


@dataclass(frozen=True, slots=True)
class UserView:
    user: str
    events: int
    history: tuple[tuple[Event, str | None], ...]  # with titles, oldest first
    state: StateWord


class UnknownError(InputError):
    """No such user or item."""
