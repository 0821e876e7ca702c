"""Requests to an engine, and its responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypedDict

from linrec.evaluation.reranking import check_diversity
from linrec.serving.past import HistoryEvent, RequestTime, check_request_time, given_events
from linrec.serving.stores import Event
from linrec.types import InputError, Seen, argument, parse_seen

Source = Literal["model", "cold-start"]
StateStatus = Literal["current", "stale", "none"]


class Item(NamedTuple):
    """A tuple, because ten of them are made for every list."""

    item: str
    title: str | None
    score: float


@dataclass(frozen=True, slots=True)
class RecommendResponse:
    user: str | None
    source: Source
    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()  # what the caller should know


def check_user_or_history(user: object, history: object) -> None:
    if (user is None) == (history is None):
        raise InputError(f"give one of {argument('user')} and {argument('history')}, and not both")


class More(TypedDict, total=False):
    """Rarer arguments of `Engine.recommend`, as in `RecommendRequest`."""

    then: Sequence[HistoryEvent]
    rules: Sequence[str]
    max_per: Mapping[str, int]
    diversity: float | None  # re-rank for items that differ by their features, 0 (off) to 1


def check_then(user: object, then: Sequence[object]) -> None:
    if user is None and then:
        raise InputError(
            f"{argument('then')} comes after the events of a {argument('user')}; add it to "
            f"{argument('history')} instead"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendRequest:
    """Of a user of the store, or of a given history: items or (item, time), oldest first."""

    user: str | None = None
    history: Sequence[HistoryEvent] | None = None
    k: int = 10
    exclude: Sequence[str] = ()
    only: Sequence[str] | None = None
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    seen: Seen | None = None  # None: as the run says
    at: RequestTime = None
    then: Sequence[HistoryEvent] = ()  # after what is stored of the user, and not kept
    rules: Sequence[str] = ()  # names of stored rules
    max_per: Mapping[str, int] = field(default_factory=dict)  # items per category of a feature
    diversity: float | None = None  # None: as the server says

    def __post_init__(self) -> None:
        check_user_or_history(self.user, self.history)
        check_then(self.user, self.then)
        check_diversity(self.diversity or 0.0)
        check_request_time(self.at)
        given_events(self.history or self.then)  # refuses a context that is none
        if self.seen is not None:
            parse_seen(self.seen)
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
    state: StateStatus


class UnfitError(Exception):
    """The model cannot serve: one sentence."""


class UnknownError(InputError):
    """No such user or item."""
