"""Items that came after the training, kept in the store for all its servers.

A server looks for changes once per second at most, and makes its model of the new items in a thread
of its own while it serves with the old one; items that it is given itself count at once.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from threading import Thread
from time import monotonic
from typing import Any

import numpy as np

from linrec.runs.extending import NewItem
from linrec.serving.ids import check_new_id
from linrec.serving.model import ServedModel
from linrec.serving.stores import Store, StoreError
from linrec.types import InputError

REFRESH_SECONDS = 1.0
ITEMS = "items"  # a kind of shared records
MAX_ADDED = 10_000


@dataclass(frozen=True, slots=True)
class AddedItem:
    """An item of the store."""

    item: str
    title: str | None
    problem: str | None  # why the model that is served does not recommend it, if so


class AddedItems:
    """The added items of a store, for any number of threads."""

    def __init__(self, store: Store) -> None:
        self._store, self._version, self._looked = store, "", monotonic()

    def changed(self) -> bool:
        """Whether there is something new since `extended`; looks once per second at most."""
        now = monotonic()
        if now - self._looked < REFRESH_SECONDS:
            return False
        self._looked = now
        with suppress(StoreError):  # what needs the store reports it
            return not self.current()
        return False

    def current(self) -> bool:
        """Whether the store has what it had when a model was extended last."""
        return self._store.shared_version(ITEMS) == self._version

    def extended(self, model: ServedModel) -> ServedModel:
        """The model with all added items that it can place and does not know itself."""
        version = self._store.shared_version(ITEMS)  # first: a later change is seen next time
        made = _with_records(model.base, self._store.shared(ITEMS))
        self._version = version
        return made

    def add(self, items: Sequence[NewItem], model: ServedModel) -> None:
        """Keep them durably, all or none; one that was added before is replaced.

        Raises InputError if the model knows one of them or cannot place it.
        """
        for item in items:
            check_new_id(item.item)
        twice = [name for name, count in Counter(item.item for item in items).items() if count > 1]
        if twice:  # of which the last one would silently win
            raise InputError(f"item {twice[0]!r} is given more than once; send it once")
        for problem in model.problems_of(items).values():
            raise InputError(problem)
        records = self._store.shared(ITEMS)
        new = {item.item: _packed(item) for item in items}
        # what a newer model knows is of no use any more, and removed once room is needed
        over = [name for name in records if model.base.index(name) is not None]
        if len(records.keys() | new.keys()) - len(over) > MAX_ADDED:
            raise InputError(
                f"there would be more than {MAX_ADDED:,} added items; train a model that knows the "
                "earlier ones, or remove some"
            )
        full = len(records.keys() | new.keys()) > MAX_ADDED
        self._store.change_shared(ITEMS, {**(dict.fromkeys(over) if full else {}), **new})

    def remove(self, item: str) -> bool:
        """Whether there was such an added item."""
        if item not in self._store.shared(ITEMS):
            return False
        self._store.change_shared(ITEMS, {item: None})
        return True

    def listed(self, model: ServedModel) -> list[AddedItem]:
        """All of the store, in the order of their ids."""
        found = [_unpacked(*each) for each in sorted(self._store.shared(ITEMS).items())]
        problems = model.problems_of(found)
        return [AddedItem(each.item, each.title, problems.get(each.item)) for each in found]


class TakesItems:
    """For an engine: the model it serves, with the items of its store."""

    added: AddedItems
    _model: ServedModel
    _reloading: AbstractContextManager[Any]  # held by whoever replaces the model

    @property
    def model(self) -> ServedModel:
        if self.added.changed():
            Thread(target=self._follow_items, name="items", daemon=True).start()
        return self._model

    def add_items(self, items: Sequence[NewItem]) -> None:
        """Items that the run does not know, by vectors or features: durable, and shown at once."""
        self.added.add(items, self._model)
        self._follow_items()

    def remove_item(self, item: str) -> bool:
        """Take back an added item; false if there was none."""
        removed = self.added.remove(item)
        self._follow_items()
        return removed

    def _follow_items(self) -> None:
        with self._reloading, suppress(StoreError):
            if not self.added.current():  # no other thread has done it meanwhile
                self._model = self.added.extended(self._model)


def _with_records(base: ServedModel, records: dict[str, str]) -> ServedModel:
    """In the order of the ids, so that all servers give an item the same index."""
    items = [_unpacked(name, records[name]) for name in sorted(records)]
    problems = base.problems_of(items)
    placed = [item for item in items if item.item not in problems]
    digest = blake2b(digest_size=16)
    for item in placed:
        digest.update(json.dumps([item.item, records[item.item]]).encode())
    return base.with_items(placed, digest.digest())


def _packed(item: NewItem) -> str:
    record: dict[str, Any] = {"title": item.title, "features": dict(item.features)}
    if item.vector is not None:
        numbers = np.array(item.vector, "<f4").tobytes()
        record["vector"] = base64.b64encode(numbers).decode()
    return json.dumps(record)


def _unpacked(name: str, content: str) -> NewItem:
    record = json.loads(content)
    vector = record.get("vector")
    numbers = None if vector is None else np.frombuffer(base64.b64decode(vector), "<f4")
    return NewItem(
        name,
        None if numbers is None else tuple(numbers.tolist()),
        record["title"],
        record["features"],
    )
