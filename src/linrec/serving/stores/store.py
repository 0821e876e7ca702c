"""What the engine needs of a place that keeps users: one small protocol for all of them.

A user is a head (one small record) and events (one record each), so that one more event costs the
same whatever the history. Every commit gives the head a new version, and applies only if the
version is still the one that was read: of two writers one has to read again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


class StoreError(Exception):
    """The store does not work now: one sentence. Nothing of the failed call was kept."""


class StoreFullError(StoreError):
    """There is no room to write; reading still works."""


@dataclass(frozen=True, slots=True)
class Event:
    item: str
    time: float
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a deletion did; true if there was anything to delete."""

    existed: bool
    pending: bool  # bytes may remain in the store's files until `vacuum`

    def __bool__(self) -> bool:
        return self.existed


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a user without reading the history."""

    version: str
    events: int  # kept
    newest: float  # time of the newest event; -inf if there is none
    snapshot: bytes | None  # what some model remembered, if it was up to date


def new_version() -> str:
    """Random, so that a user who was forgotten and came back never has an old version again."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Change:
    """More events of a user, to be kept only if no other writer came first."""

    user: str
    version: str | None  # as read; None: the user must not exist yet
    events: Sequence[Event]  # put in order by time, equal times in order of arrival
    snapshot: bytes | None  # replaces the old one
    keep: int  # of the user's events, the newest
    new_version: str = field(default_factory=new_version)  # of the head, once applied
    unless_forgotten: bool = False  # refuse it if the user was forgotten


class Store(Protocol):
    def heads(self, users: Sequence[str]) -> list[Head | None]:
        """The head of each user, None where there is no such user."""

    def known_ids(self, users: Sequence[tuple[str, Sequence[str]]]) -> list[set[str]]:
        """For each user, those of the given event ids that are stored already."""

    def commit(self, changes: Sequence[Change]) -> list[bool]:
        """Apply each change or none of it; False where another writer came first.

        A change that returned True is kept, also if the process is killed right after.
        """

    def history(self, user: str, newest: int | None = None) -> list[Event]:
        """The events of a user, oldest first; of many only the `newest`."""

    def forget(self, user: str) -> Forgotten:
        """Remove all of a user, and remember that under a digest of the id."""

    def replace_event(
        self, user: str, event_id: str, item: str | None, time: float | None = None
    ) -> Forgotten:
        """Another item, and time if given, for one event; no item removes the event."""

    def vacuum(self) -> bool:
        """Remove what deletions left in the store's files; whether nothing can remain."""

    def users(self, prefix: str, limit: int) -> list[str]:
        """Users whose id begins with the prefix, in order."""

    def check(self) -> None:
        """Raise StoreError if it does not work, or has no room to write."""

    def warnings(self) -> list[str]:
        """Settings under which acknowledged events can be lost: one sentence each."""

    def close(self) -> None: ...
