"""Histories of a dataset into a store, so that a server begins with what is known already."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from linrec.data.dataset.store import SequenceStore
from linrec.serving.stores import Change, Event, Store

USERS_AT_ONCE = 200


def import_histories(
    data: SequenceStore,
    store: Store,
    keep: int,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Users that the store does not have yet, each with all events or not at all; how many.

    States are made when a user is first asked for.
    """
    taken = done = 0
    for changes in _changes(data, store, keep):
        taken += sum(store.commit(changes))
        done += USERS_AT_ONCE
        if progress is not None:
            progress(min(done, data.n_users), data.n_users)
    return taken


def _changes(data: SequenceStore, store: Store, keep: int) -> Iterator[list[Change]]:
    users = [str(user) for user in data.users.ids]
    items = ["", *(str(item) for item in data.catalogue.ids)]
    for first in range(0, len(users), USERS_AT_ONCE):
        some = users[first : first + USERS_AT_ONCE]
        new = [head is None for head in store.heads(some)]
        yield [
            Change(user, None, _events(data, items, first + place), None, keep)
            for place, user in enumerate(some)
            if new[place]
        ]


def _events(data: SequenceStore, items: list[str], row: int) -> list[Event]:
    owned = slice(int(data.offsets[row]), int(data.offsets[row + 1]))
    pairs = zip(data.items[owned].tolist(), data.times[owned].tolist(), strict=True)
    return [Event(items[index], time) for index, time in pairs]
