"""Users in this process's memory: for tests, demonstrations and users that may be lost."""

from __future__ import annotations

import secrets
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from linrec.serving.stores.shared import MemoryShared
from linrec.serving.stores.store import (
    MAX_SNAPSHOTS,
    Change,
    Event,
    Forgotten,
    Head,
    Marks,
    StoredSnapshot,
    model_of,
    new_version,
    user_digest,
)


@dataclass(slots=True)
class _User:
    version: str = ""
    arrived: int = 0
    written: float = 0.0
    # by model, newest first: the snapshot, and `arrived` when it was stored
    snapshots: dict[bytes, tuple[StoredSnapshot, int]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)  # in order of time, then of arrival
    ids: set[str] = field(default_factory=set)


class MemoryStore(MemoryShared):
    shards = 1

    def __init__(self) -> None:
        super().__init__()
        self._users: dict[str, _User] = {}
        self._forgotten: set[bytes] = set()  # digests
        self._key = secrets.token_bytes(16)
        self._lock = Lock()

    def heads(self, users: Sequence[str]) -> list[Head | None]:
        with self._lock:
            return [self._head(user) for user in users]

    def _head(self, user: str) -> Head | None:
        found = self._users.get(user)
        if found is None:
            return None
        newest = found.events[-1].time if found.events else float("-inf")
        snapshots = tuple(
            replace(snapshot, missing=found.arrived - arrived)
            for snapshot, arrived in found.snapshots.values()
        )
        return Head(found.version, len(found.events), newest, snapshots)

    def versions(self, users: Sequence[str]) -> list[str | None]:
        with self._lock:
            found = [self._users.get(user) for user in users]
            return [None if each is None else each.version for each in found]

    def known_ids(self, users: Sequence[tuple[str, Sequence[str]]]) -> list[set[str]]:
        with self._lock:
            return [
                self._users[user].ids.intersection(ids) if user in self._users else set()
                for user, ids in users
            ]

    def commit(self, changes: Sequence[Change]) -> list[bool]:
        with self._lock:
            return [self._apply(change) for change in changes]

    def _apply(self, change: Change) -> bool:
        found = self._users.get(change.user)
        if (None if found is None else found.version) != change.version:
            return False
        if change.unless_forgotten and self._digest(change.user) in self._forgotten:
            return False
        if found is None:
            found = self._users[change.user] = _User()
        if found.events and any(event.time < found.events[-1].time for event in change.events):
            found.snapshots = {}
        for event in change.events:
            insort(found.events, event, key=lambda kept: kept.time)
            if event.id is not None:
                found.ids.add(event.id)
        surplus = max(len(found.events) - change.keep, 0)
        found.ids.difference_update(old.id for old in found.events[:surplus] if old.id is not None)
        del found.events[:surplus]
        found.version = change.new_version
        found.written = change.written if change.events or not found.written else found.written
        found.arrived += len(change.events)
        if change.snapshot is not None:
            self._put_snapshot(found, change.snapshot)
        return True

    def _put_snapshot(self, found: _User, content: bytes) -> None:
        made = StoredSnapshot(found.version, len(found.events), 0, content)
        others = {m: old for m, old in found.snapshots.items() if m != model_of(content)}
        newest = [(model_of(content), (made, found.arrived)), *others.items()]
        found.snapshots = dict(newest[:MAX_SNAPSHOTS])

    def history(self, user: str, newest: int | None = None) -> list[Event]:
        with self._lock:
            found = self._users.get(user)
            if found is None:
                return []
            return found.events[:] if newest is None else found.events[-newest:]

    def oldest(self, user: str, count: int) -> list[float]:
        return [event.time for event in self.history(user)[:count]]

    def forget(self, user: str) -> Forgotten:
        with self._lock:
            self._forgotten.add(self._digest(user))
            return Forgotten(self._users.pop(user, None) is not None, pending=False)

    def replace_event(
        self, user: str, event_id: str, item: str | None, time: float | None = None
    ) -> Forgotten:
        with self._lock:
            found = self._users.get(user)
            if found is None or event_id not in found.ids:
                return Forgotten(False, pending=False)
            old = next(event for event in found.events if event.id == event_id)
            found.events.remove(old)
            if item is None:
                found.ids.remove(event_id)
            else:
                new = Event(item, old.time if time is None else time, event_id, old.context)
                insort(found.events, new, key=lambda kept: kept.time)
            found.version, found.snapshots = new_version(), {}
            return Forgotten(True, pending=False)

    def vacuum(self) -> bool:
        return True

    def users(self, prefix: str, limit: int, after: str = "") -> list[str]:
        with self._lock:
            found = (user for user in self._users if user.startswith(prefix) and user > after)
            return sorted(found)[:limit]

    def expire(self, before: float, limit: int) -> int:
        with self._lock:
            idle = [user for user, found in self._users.items() if found.written < before][:limit]
            self._forgotten.update(map(self._digest, idle))
            for user in idle:
                del self._users[user]
            return len(idle)

    def _digest(self, user: str) -> bytes:
        return user_digest(user, self._key)

    def forgotten(self) -> Marks:
        return Marks(self._key, frozenset(self._forgotten))

    def add_forgotten(self, marks: Marks) -> bool:
        with self._lock:
            if marks.key != self._key and self._forgotten:
                return False
            self._key = marks.key
            self._forgotten.update(marks.digests)
            return True

    def problems(self) -> list[str]:
        return []

    def check(self) -> None: ...

    def warnings(self) -> list[str]:
        return []

    def close(self) -> None: ...
