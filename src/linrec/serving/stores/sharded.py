"""Users in several SQLite files of one folder, divided by a hash of their ids.

One file has one writer at a time, which waits for the disk with each commit. Writers of different
files do not wait for each other, so this is what several workers of one machine want. All of a user
is in one file, where every promise of `SQLiteStore` holds. What users share is in the first file;
marks of forgotten users have one key in all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from linrec.serving.stores.sqlite import SQLiteStore
from linrec.serving.stores.store import Change, Event, Forgotten, Head, Marks
from linrec.types import InputError, argument

FORMAT, MANIFEST = 1, "store.json"
MAX_SHARDS = 64

Given = TypeVar("Given")
Made = TypeVar("Made")


def shard_of(user: str, shards: int) -> int:
    """The same in every process and version: it says where a user is."""
    return zlib.crc32(user.encode()) % shards


def create_shards(folder: Path, shards: int) -> None:
    """A new store; the folder appears complete. Of two processes, the first one makes it."""
    if not folder.parent.is_dir():
        raise InputError(f"{folder.parent} is not a folder; choose a place for the store")
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))  # 0700
    try:
        marks: Marks | None = None
        for path in _files(draft, shards):
            made = SQLiteStore(path)
            marks = marks or made.forgotten()
            made.add_forgotten(marks)  # one key for all
            made.close()
        (draft / MANIFEST).write_text(json.dumps({"format": FORMAT, "shards": shards}) + "\n")
        for path in (*draft.iterdir(), draft):
            _sync(path)
        draft.rename(folder)
        _sync(folder.parent)
    except OSError as error:
        if not (folder / MANIFEST).is_file():  # nobody else made it meanwhile
            raise InputError(f"cannot make a store in {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _files(folder: Path, shards: int) -> list[Path]:
    return [folder / f"users-{number:04d}.sqlite" for number in range(shards)]


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class ShardedStore:
    def __init__(self, folder: str | Path, shards: int | None = None) -> None:
        """shards: how many it must have; None: as many as it has."""
        self.path = Path(folder)
        self.shards = _shards_in(self.path)
        if shards not in (None, self.shards):
            raise InputError(
                f"the store {self.path} has {self.shards} files, and {argument('store_shards')} "
                f"is {shards}; leave it out, or export the users into a new store"
            )
        files = _files(self.path, self.shards)
        lost = next((path for path in files if not path.is_file()), None)
        if lost is not None:  # an empty file instead would hide that its users are gone
            raise InputError(f"{lost} is missing from the store; put it back, or restore a backup")
        self._parts = [SQLiteStore(path) for path in files]

    def part(self, user: str) -> SQLiteStore:
        return self._parts[shard_of(user, self.shards)]

    def _by_part(
        self,
        given: Sequence[Given],
        user: Callable[[Given], str],
        work: Callable[[SQLiteStore, list[Given]], Sequence[Made]],
    ) -> list[Made]:
        """What each part makes of its own, in the order of what was given."""
        if len(given) == 1:
            return list(work(self.part(user(given[0])), list(given)))
        rows: dict[int, list[int]] = {}
        for row, each in enumerate(given):
            rows.setdefault(shard_of(user(each), self.shards), []).append(row)
        made: dict[int, Made] = {}
        for shard, mine in rows.items():
            done = work(self._parts[shard], [given[row] for row in mine])
            made |= zip(mine, done, strict=True)
        return [made[row] for row in range(len(given))]

    def heads(self, users: Sequence[str]) -> list[Head | None]:
        return self._by_part(users, str, SQLiteStore.heads)

    def versions(self, users: Sequence[str]) -> list[str | None]:
        return self._by_part(users, str, SQLiteStore.versions)

    def known_ids(self, users: Sequence[tuple[str, Sequence[str]]]) -> list[set[str]]:
        return self._by_part(users, lambda each: each[0], SQLiteStore.known_ids)

    def commit(self, changes: Sequence[Change]) -> list[bool]:
        """A commit of each file by itself: if one fails, those of others may have been kept."""
        return self._by_part(changes, lambda change: change.user, SQLiteStore.commit)

    def history(self, user: str, newest: int | None = None) -> list[Event]:
        return self.part(user).history(user, newest)

    def oldest(self, user: str, count: int) -> list[float]:
        return self.part(user).oldest(user, count)

    def forget(self, user: str) -> Forgotten:
        return self.part(user).forget(user)

    def replace_event(
        self, user: str, event_id: str, item: str | None, time: float | None = None
    ) -> Forgotten:
        return self.part(user).replace_event(user, event_id, item, time)

    def users(self, prefix: str, limit: int, after: str = "") -> list[str]:
        return list(
            islice(merge(*(each.users(prefix, limit, after) for each in self._parts)), limit)
        )

    def expire(self, before: float, limit: int) -> int:
        done = 0
        for each in self._parts:
            if done < limit:
                done += each.expire(before, limit - done)
        return done

    def forgotten(self) -> Marks:
        marks = [each.forgotten() for each in self._parts]
        return Marks(marks[0].key, frozenset().union(*(each.digests for each in marks)))

    def add_forgotten(self, marks: Marks) -> bool:
        """Into every file, because a digest does not tell whose it is."""
        mine = self.forgotten()
        if mine.key != marks.key and mine.digests:
            return False
        taken = [each.add_forgotten(marks) for each in self._parts]
        return all(taken)

    def shared_version(self, kind: str) -> str:
        return self._parts[0].shared_version(kind)

    def shared(self, kind: str) -> dict[str, str]:
        return self._parts[0].shared(kind)

    def change_shared(self, kind: str, changes: Mapping[str, str | None]) -> None:
        self._parts[0].change_shared(kind, changes)

    def vacuum(self) -> bool:
        emptied = [each.vacuum() for each in self._parts]  # all of them, also after a failure
        return all(emptied)

    def check(self) -> None:
        for each in self._parts:
            each.check()

    def warnings(self) -> list[str]:
        return self._parts[0].warnings()

    def problems(self) -> list[str]:
        return [
            *(f"{part.path.name}: {line}" for part in self._parts for line in part.problems()),
            *(f"user {user!r} is in the wrong file" for user in self._misplaced()),
        ]

    def _misplaced(self) -> Iterator[str]:
        for number, part in enumerate(self._parts):
            with part._reading() as connection:
                for (user,) in connection.execute("SELECT user FROM users"):
                    if shard_of(user, self.shards) != number:
                        yield user

    def backup(self, target: Path) -> None:
        """A folder like this one; each file as it is at one moment."""
        target.mkdir(mode=0o700)
        for part, copy in zip(self._parts, _files(target, self.shards), strict=True):
            part.backup(copy)
        shutil.copyfile(self.path / MANIFEST, target / MANIFEST)

    def close(self) -> None:
        for each in self._parts:
            each.close()


def _shards_in(folder: Path) -> int:
    try:
        about: dict[str, Any] = json.loads((folder / MANIFEST).read_text("utf-8"))
        form, shards = about["format"], about["shards"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{folder} is a folder and not a store ({MANIFEST} is missing or damaged); choose "
            "another place"
        ) from None
    if form != FORMAT or not isinstance(shards, int) or not 1 <= shards <= MAX_SHARDS:
        raise InputError(
            f"{folder} has format {form} and this linrec reads {FORMAT}; choose another place"
        )
    return shards
