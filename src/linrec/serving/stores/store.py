"""What the engine asks of a place that keeps users: one small protocol for all of them.

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
    """The store cannot answer now: one sentence. Nothing of the failed call was kept."""


class StoreFullError(StoreError):
    """There is no room to write; reading still works."""


@dataclass(frozen=True, slots=True)
class Event:
    item: str
    time: float
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a user without reading the history."""

    version: str
    events: int  # kept
    newest: float  # time of the newest event
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


class Store(Protocol):
    def heads(self, users: Sequence[str]) -> list[Head | None]:
        """The head of each user, None where there is no such user."""

    def known_ids(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[set[str]]:
        """Of the event ids asked for, user by user, those that are kept already."""

    def commit(self, changes: Sequence[Change]) -> list[bool]:
        """Apply each change or none of it; False where another writer came first.

        What was answered True is kept, also if the process is killed right after.
        """

    def history(self, user: str, newest: int | None = None) -> list[Event]:
        """The events of a user, oldest first; of many only the `newest`."""

    def forget(self, user: str) -> bool:
        """Remove all of a user; whether there was anything."""

    def users(self, prefix: str, limit: int) -> list[str]:
        """Users whose id begins so, in order."""

    def check(self) -> None:
        """Raise StoreError if it does not answer."""

    def close(self) -> None: ...
