"""Looking after a store while servers use it: check, backup, export and import."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

from linrec.serving.contexts import Context, context_of, context_text
from linrec.serving.ids import check_new_id
from linrec.serving.stores import (
    Change,
    DamagedError,
    Event,
    Marks,
    ShardedStore,
    SQLiteStore,
    Store,
)
from linrec.types import InputError

EXPORT_FORMAT = 1
USERS_AT_ONCE = 200
MAX_PROBLEMS = 20  # listed one by one


class Imported(NamedTuple):
    users: int
    left_out: int  # they were there already, or were forgotten
    marks: bool  # whether the marks of forgotten users were taken over


def all_users(store: Store) -> Iterator[str]:
    after = ""
    while some := store.users("", USERS_AT_ONCE, after):
        yield from some
        after = some[-1]


def check_store(store: Store) -> list[str]:
    """What is damaged: one sentence each, the first of many."""
    problems = store.problems()
    for user in all_users(store):
        if len(problems) > MAX_PROBLEMS:
            return [*problems[:MAX_PROBLEMS], "and more"]
        problem = _problem_of(store, user)
        if problem is not None:
            problems.append(f"user {user!r}: {problem}")
    return problems


def _problem_of(store: Store, user: str) -> str | None:
    while True:
        try:
            head, events = store.heads([user])[0], store.history(user)
            if store.heads([user])[0] != head:  # a server wrote meanwhile
                continue
        except DamagedError:
            return "a record is not what was written; delete the user, or restore a backup"
        if head is None:
            return None
        newest = max((event.time for event in events), default=float("-inf"))
        if (head.events, head.newest) != (len(events), newest):
            return f"has {len(events)} events where {head.events} were stored"
        ids = [event.id for event in events if event.id is not None]
        if store.known_ids([(user, ids)])[0] != set(ids) or len(ids) != len(set(ids)):
            return "the ids of events differ from the events"
        return None


def backup(store: Store, target: Path) -> None:
    """SQLite: a copy of the file or folder. Others: an export. It appears when it is complete."""
    draft = target.with_name(f".{target.name}.draft")
    try:
        if isinstance(store, SQLiteStore | ShardedStore):
            store.backup(draft)
        else:
            _write(draft, export_lines(store))
        draft.replace(target)
    finally:
        if draft.is_dir():
            rmtree(draft)
        else:
            draft.unlink(missing_ok=True)


def export_users(store: Store, target: Path) -> int:
    """All users as JSON lines; how many."""
    draft = target.with_name(f".{target.name}.draft")
    try:
        lines = _write(draft, export_lines(store))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return lines - 1


def export_lines(store: Store) -> Iterator[dict[str, Any]]:
    marks = store.forgotten()
    digests = sorted(digest.hex() for digest in marks.digests)
    yield {"linrec_users": EXPORT_FORMAT, "key": marks.key.hex(), "forgotten": digests}
    for user in all_users(store):
        events = store.history(user)
        if events or store.heads([user])[0] is not None:
            yield {"user": user, "events": [_exported(event) for event in events]}


def _exported(event: Event) -> list[Any]:
    parts = [event.item, event.time, event.id]
    return parts if event.context is None else [*parts, context_of(event.context)]


def _write(path: Path, lines: Iterable[dict[str, Any]]) -> int:
    count = 0
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            count += 1
        file.flush()
        os.fsync(file.fileno())
    return count


def import_users(store: Store, source: Path, keep: int, *, resurrect: bool = False) -> Imported:
    """Users of an export that the store does not have, each with all events or not at all.

    The whole file is read first, so that nothing is stored of one that is damaged.
    """
    for _ in _read(source):
        pass
    lines = _read(source)
    first = next(lines)
    assert isinstance(first, Marks)
    taken = store.add_forgotten(first)
    imported = left_out = 0
    for change in _changes(lines, keep, resurrect):
        (done,) = store.commit([change])
        imported, left_out = imported + done, left_out + (not done)
    return Imported(imported, left_out, taken)


def _changes(lines: Iterator[Marks | tuple[str, list[Event]]], keep: int, resurrect: bool
) -> Iterator[Change]:  # fmt: skip
    for line in lines:
        assert not isinstance(line, Marks)
        user, events = line
        yield Change(user, None, events, None, keep, unless_forgotten=not resurrect)


def _read(source: Path) -> Iterator[Marks | tuple[str, list[Event]]]:
    number = 0
    try:
        with source.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                yield _marks(json.loads(line)) if number == 1 else _user(json.loads(line))
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError, InputError):
        raise InputError(
            f"{source}, line {number}, is not from an export of linrec, or damaged; export again"
        ) from None
    if number == 0:
        raise InputError(f"{source} is empty; give a file that `linrec store export` wrote")


def _marks(line: Any) -> Marks:
    if line["linrec_users"] != EXPORT_FORMAT:
        raise ValueError(line)
    return Marks(bytes.fromhex(line["key"]), frozenset(map(bytes.fromhex, line["forgotten"])))


def _user(line: Any) -> tuple[str, list[Event]]:
    return check_new_id(line["user"]), [_event(*parts) for parts in line["events"]]


def _event(item: str, time: float, name: str | None, context: Context | None = None) -> Event:
    id_ = None if name is None else check_new_id(name)
    return Event(check_new_id(item), float(time), id_, context_text(context))
