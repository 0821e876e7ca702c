"""What the engine needs of a place that keeps users: one small protocol for all of them.

A user is a head (one small record) and events (one record each), so that one more event costs the
same whatever the history. Every commit gives the head a new version, and applies only if the
version is still the one that was read: of two writers one has to read again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from time import time
from typing import Any, Protocol

from linrec.serving.stores.shared import SharedRecords

MODEL_BYTES = 16  # at the beginning of a snapshot, which name the model it belongs to
MAX_SNAPSHOTS = 2  # per user, so that two models can be served from one store


class StoreError(Exception):
    """The store does not work now: one sentence. Nothing of the failed call was kept."""


class DamagedError(StoreError):
    """Stored records are not what was written; nothing is made of them."""


class StoreFullError(StoreError):
    """There is no room to write; reading still works."""


@dataclass(frozen=True, slots=True)
class Event:
    item: str
    time: float
    id: str | None = None
    context: str | None = None  # what else is known of it, as `contexts.context_text` writes it


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a deletion did; true if there was anything to delete."""

    existed: bool
    pending: bool  # bytes may remain in the store's files until `vacuum`

    def __bool__(self) -> bool:
        return self.existed


@dataclass(frozen=True, slots=True)
class Marks:
    """Digests of forgotten users, and the key they were made with."""

    key: bytes
    digests: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """What some model remembered, and how far the user has moved on since.

    A store keeps it only while it is the state of a beginning of the history: in-order events
    leave it, a late, changed or deleted event removes it.
    """

    version: str  # of the head it was stored with
    events: int  # kept of the user then
    missing: int  # events that arrived since: the newest of the history
    content: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a user without reading the history."""

    version: str
    events: int  # kept
    newest: float  # time of the newest event; -inf if there is none
    snapshots: tuple[StoredSnapshot, ...] = ()  # one per model, newest first
    # by model, what it read: a head that is kept in memory is checked and unpacked once
    unpacked: dict[bytes, Any] = field(default_factory=dict, compare=False, repr=False)
    # by model, the state after all events, where the stored one lacks some
    latest: dict[bytes, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def snapshot(self) -> bytes | None:
        """The newest, if it is of what is stored now."""
        current = [each.content for each in self.snapshots if not each.missing]
        return current[0] if current else None

    def snapshot_of(self, model: bytes) -> StoredSnapshot | None:
        """What this model remembered; `model` is how its snapshots begin."""
        mine = (each for each in self.snapshots if model_of(each.content) == model)
        return next(mine, None)


def model_of(content: bytes) -> bytes:
    return content[:MODEL_BYTES]


def user_digest(user: str, key: bytes) -> bytes:
    """Of a forgotten user, with a key of the store, so that the id itself is not kept."""
    return blake2b(user.encode(), key=key, digest_size=16).digest()


def new_version() -> str:
    """Random, so that a user who was forgotten and came back never has an old version again."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Change:
    """More events of a user, to be kept only if no other writer came first."""

    user: str
    version: str | None  # as read; None: the user must not exist yet
    events: Sequence[Event]  # put in order by time, equal times in order of arrival
    snapshot: bytes | None  # replaces the old one of the same model
    keep: int  # of the user's events, the newest
    new_version: str = field(default_factory=new_version)  # of the head, once applied
    unless_forgotten: bool = False  # refuse it if the user was forgotten
    written: float = field(default_factory=time)  # counts only if there are events


class Store(SharedRecords, Protocol):
    shards: int  # files whose writers do not wait for each other; `sharded.shard_of` tells which

    def heads(self, users: Sequence[str]) -> list[Head | None]:
        """The head of each user, None where there is no such user."""

    def versions(self, users: Sequence[str]) -> list[str | None]:
        """The version of each user's head alone, None where there is no such user."""

    def known_ids(self, users: Sequence[tuple[str, Sequence[str]]]) -> list[set[str]]:
        """For each user, those of the given event ids that are stored already."""

    def commit(self, changes: Sequence[Change]) -> list[bool]:
        """Apply each change or none of it; False where another writer came first.

        A change that returned True is kept, also if the process is killed right after.
        """

    def history(self, user: str, newest: int | None = None) -> list[Event]:
        """The events of a user, oldest first; of many only the `newest`."""

    def oldest(self, user: str, count: int) -> list[float]:
        """The times of a user's oldest events, oldest first."""

    def forget(self, user: str) -> Forgotten:
        """Remove all of a user, and remember that under a digest of the id."""

    def replace_event(
        self, user: str, event_id: str, item: str | None, time: float | None = None
    ) -> Forgotten:
        """Another item, and time if given, for one event; no item removes the event."""

    def vacuum(self) -> bool:
        """Remove what deletions left in the store's files; whether nothing can remain."""

    def users(self, prefix: str, limit: int, after: str = "") -> list[str]:
        """Users whose id begins with the prefix, in order, from the first one after `after`."""

    def expire(self, before: float, limit: int) -> int:
        """Forget users who were last written before that time, `limit` at most; how many."""

    def forgotten(self) -> Marks:
        """The marks of forgotten users, for a copy of the store."""

    def add_forgotten(self, marks: Marks) -> bool:
        """Take over marks; False if this store has marks of its own under another key."""

    def problems(self) -> list[str]:
        """What is damaged in the store's own structures, one sentence each."""

    def check(self) -> None:
        """Raise StoreError if it does not work, or has no room to write."""

    def warnings(self) -> list[str]:
        """Settings under which acknowledged events can be lost: one sentence each."""

    def close(self) -> None: ...
