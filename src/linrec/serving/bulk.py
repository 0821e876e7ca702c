"""Imports the histories of a dataset into a store, so that a server starts with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from linrec.data.dataset.store import SequenceStore
from linrec.serving.contexts import context_text
from linrec.serving.ids import check_new_id
from linrec.serving.stores import Change, Event, Store

USERS_AT_ONCE = 200


class Imported(NamedTuple):
    users: int  # stored
    forgotten: int  # left out, because they were forgotten earlier


def import_histories(
    data: SequenceStore,
    store: Store,
    keep: int,
    progress: Callable[[int, int], None] | None = None,
    *,
    resurrect: bool = False,
) -> Imported:
    """Store users that the store does not have yet, each with all events or not at all.

    Users who were forgotten stay so unless `resurrect`. States are made when they are needed.
    """
    imported = refused = done = 0
    for changes in _changes(data, store, keep, resurrect):
        applied = store.commit(changes)
        imported, refused = imported + sum(applied), refused + applied.count(False)
        done += USERS_AT_ONCE
        if progress is not None:
            progress(min(done, data.n_users), data.n_users)
    return Imported(imported, refused)


def _changes(
    data: SequenceStore, store: Store, keep: int, resurrect: bool
) -> Iterator[list[Change]]:
    users = [check_new_id(str(user)) for user in data.users.ids]
    items = ["", *(check_new_id(str(item)) for item in data.catalogue.ids)]
    for first in range(0, len(users), USERS_AT_ONCE):
        some = users[first : first + USERS_AT_ONCE]
        new = [head is None for head in store.heads(some)]
        yield [
            Change(
                user,
                None,
                _events(data, items, first + row),
                None,
                keep,
                unless_forgotten=not resurrect,
            )
            for row, user in enumerate(some)
            if new[row]
        ]


def _events(data: SequenceStore, items: list[str], row: int) -> list[Event]:
    owned = slice(int(data.offsets[row]), int(data.offsets[row + 1]))
    pairs = zip(data.items[owned].tolist(), data.times[owned].tolist(), strict=True)
    contexts = _contexts(data, owned)
    return [
        Event(items[index], time, None, context)
        for (index, time), context in zip(pairs, contexts, strict=True)
    ]


def _contexts(data: SequenceStore, owned: slice) -> list[str | None]:
    """Of each of the user's events, all that the dataset keeps."""
    columns = {column.name: column.take(owned).texts() for column in data.context}
    count = owned.stop - owned.start
    rows = [{name: values[row] for name, values in columns.items()} for row in range(count)]
    return [context_text(row) for row in rows]
