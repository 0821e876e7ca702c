"""Recent users in memory, in front of a store that other servers may write too.

A cached head is never trusted for itself: a reader compares its version with the stored one, and a
writer's commit does. What this saves is reading, checking and unpacking the states.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock

from linrec.serving.model import ServedModel
from linrec.serving.stores import Head, Store, StoreError

OVERHEAD = 1_000  # bytes of a user beside the states, roughly
FEW = 64  # events that a stored state may lack, to be caught up with together with other users
OFTEN, WEIGHT = 0.05, 0.1  # of users that other servers move on; of the newest observation
# a state is kept as it is stored and unpacked
COPIES = 2


class HeadCache:
    """The heads of the users that were last used, as many as fit into so many bytes."""

    def __init__(self, store: Store, max_bytes: int) -> None:
        self._store, self._max_bytes = store, max_bytes
        self.keeps = max_bytes > 0
        self._outdated = 0.0  # share of users that another server had moved on, lately
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._bytes, self._lock = 0, Lock()

    def current(self, users: Sequence[str]) -> list[Head | None]:
        """As the store has them now."""
        if not self._max_bytes:
            return self._store.heads(users)
        return self._with_versions(users, self._store.versions(users))

    def _with_versions(
        self, users: Sequence[str], versions: Sequence[str | None]
    ) -> list[Head | None]:
        heads, outdated = self._cached(users), 0
        for row, (head, version) in enumerate(zip(heads, versions, strict=True)):
            if head is not None and head.version != version:
                heads[row] = None
                self.drop(users[row])
                outdated += 1
        self.note(outdated, len(users))
        missing = [
            row
            for row, (head, version) in enumerate(zip(heads, versions, strict=True))
            if head is None and version is not None
        ]
        self._read(users, heads, missing)
        return heads

    def recent(self, users: Sequence[str]) -> list[Head | None]:
        """As they were when last used, if that is known: for writers, whose commit checks.

        Where other servers append to the same users, asking first is cheaper than a commit in vain.
        """
        if self._outdated > OFTEN:
            return self.current(users)
        heads = self._cached(users)
        self._read(users, heads, [row for row, head in enumerate(heads) if head is None])
        return heads

    def note(self, outdated: int, users: int) -> None:
        """How many of some users another server had moved on."""
        if users:
            self._outdated += WEIGHT * (outdated / users - self._outdated)

    def are_current(self, users: Sequence[str], heads: Sequence[Head | None]) -> list[bool]:
        """Whether these are what the store has; those that are not are dropped."""
        found = self._store.versions(users)
        right = [
            version == (None if head is None else head.version)
            for version, head in zip(found, heads, strict=True)
        ]
        for user, fine in zip(users, right, strict=True):
            if not fine:
                self.drop(user)
        return right

    def catch_up(self, model: ServedModel, heads: Mapping[str, Head | None]) -> None:
        """Give heads whose stored state lacks a few events the state after those."""
        behind = [
            (user, head, snapshot, missing)
            for user, head in heads.items()
            if head is not None
            for snapshot, missing in [model.read_behind(head)]
            if snapshot is not None and 0 < missing <= FEW
        ]
        if not behind:
            return
        rows = []
        for user, head, snapshot, missing in behind:
            with suppress(StoreError):  # reported where the whole history is read
                newest = model.past(self._store.history(user, missing))
                rows.append((user, head, snapshot, newest))
        current = self.are_current([row[0] for row in rows], [row[1] for row in rows])
        # of others, these may not be the events that are missing
        rows = [row for row, right in zip(rows, current, strict=True) if right]
        made = model.advance([(snapshot, newest) for *_, snapshot, newest in rows])
        for (_, head, *_), after in zip(rows, made, strict=True):
            head.latest[model.key] = after

    def _read(self, users: Sequence[str], heads: list[Head | None], rows: list[int]) -> None:
        if not rows:
            return
        for row, head in zip(rows, self._store.heads([users[row] for row in rows]), strict=True):
            heads[row] = head
            if head is not None:
                self.put(users[row], head)

    def _cached(self, users: Sequence[str]) -> list[Head | None]:
        with self._lock:
            heads = [self._heads.get(user) for user in users]
            for user, head in zip(users, heads, strict=True):
                if head is not None:
                    self._heads.move_to_end(user)
        return heads

    def put(self, user: str, head: Head) -> None:
        size = _size(head)
        if size > self._max_bytes:
            self.drop(user)
            return
        with self._lock:
            self._remove(user)
            self._heads[user] = head
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, oldest = self._heads.popitem(last=False)
                self._bytes -= _size(oldest)

    def drop(self, user: str) -> None:
        with self._lock:
            self._remove(user)

    def _remove(self, user: str) -> None:
        old = self._heads.pop(user, None)
        if old is not None:
            self._bytes -= _size(old)

    def __len__(self) -> int:
        return len(self._heads)


def _size(head: Head) -> int:
    return OVERHEAD + COPIES * sum(len(each.content) for each in head.snapshots)
