"""Many events into a store: one read, one model call and one commit per batch."""

from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import time
from typing import Any

from pydantic_core import from_json

from linrec.serving.appending import Append, Appended, Appender, NewEvent, check_not_future
from linrec.serving.contexts import Context, context_text
from linrec.serving.heads import HeadCache
from linrec.serving.ids import check_new_id
from linrec.serving.ingest_settings import IngestSettings
from linrec.serving.model import ServedModel
from linrec.serving.sources import Batch, Source
from linrec.serving.stores import Store
from linrec.types import InputError

MAX_SAMPLES = 5  # of lines that were left out


class BadEventError(InputError):
    """A line is not an event: why."""


@dataclass
class Ingested:
    """What became of the lines."""

    stored: int = 0
    duplicates: int = 0  # their ids were stored already
    too_old: int = 0  # older than all that is kept of their users
    bad: Counter[str] = field(default_factory=Counter)  # lines left out, by reason
    samples: list[tuple[str, str]] = field(default_factory=list)  # reason and line

    def leave_out(self, reason: str, line: str, count: int = 1) -> None:
        if reason not in self.bad and len(self.samples) < MAX_SAMPLES:
            self.samples.append((reason, line))
        self.bad[reason] += count


class Ingest:
    """Reads a source to its end. Servers may use the store meanwhile."""

    def __init__(self, store: Store, settings: IngestSettings, model: ServedModel | None) -> None:
        """model: whose states are brought up to date; None leaves that to the next reader."""
        self._settings, self._engine = settings, settings.engine()
        heads = HeadCache(store, self._engine.cache_mb << 20)
        self._appender = Appender(store, heads, self._engine, lambda: model)
        self.done = Ingested()

    def run(
        self, source: Source, progress: Callable[[int, int | None], None] | None = None
    ) -> Ingested:
        """Raises StoreError if the store or the source fails; what is stored stays stored."""
        for batch in source.batches(self._settings.batch):
            with _without_collection():
                self._store(batch)
            source.confirm(batch)
            if progress is not None:
                progress(batch.done, batch.total)
        return self.done

    def _store(self, batch: Batch) -> None:
        users: dict[str, list[NewEvent]] = {}
        names: Sequence[str | None] = batch.names or [None] * len(batch.lines)
        now = time()
        for line, name in zip(batch.lines, names, strict=True):
            if not line.strip():
                continue
            try:
                user, event = parse_event(line, name)
                if event.time is not None:
                    check_not_future(event.time, self._engine, now)
            except InputError as error:
                self.done.leave_out(str(error), line.decode(errors="replace").strip())
                continue
            users.setdefault(user, []).append(event)
        requests = [Append(user, events) for user, events in users.items()]
        for request, outcome in zip(requests, self._appender.append(requests), strict=True):
            self._count(request, outcome)

    def _count(self, request: Append, outcome: Appended | Exception) -> None:
        if isinstance(outcome, InputError):  # late, where that is refused
            self.done.leave_out(str(outcome), f"events of {request.user}", len(request.events))
        elif isinstance(outcome, Exception):
            raise outcome
        else:
            self.done.stored += outcome.appended
            self.done.duplicates += outcome.duplicates
            self.done.too_old += outcome.too_old


@contextmanager
def _without_collection() -> Iterator[None]:
    """A batch makes many objects and no cycles: looking for some takes a quarter of its time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def parse_event(line: bytes, name: str | None) -> tuple[str, NewEvent]:
    """User and event of a JSON object; fields other than those of an event are ignored.

    name: the id of an event that has none.
    """
    try:
        content = from_json(line)
    except ValueError:
        raise BadEventError("not JSON") from None
    if not isinstance(content, dict):
        raise BadEventError("not a JSON object")
    when = content.get("time")
    if when is not None and (
        isinstance(when, bool) or not isinstance(when, int | float) or not math.isfinite(when)
    ):
        raise BadEventError("time is not a number of seconds")
    given = content.get("id")
    own = name if given is None else _id(content, "id")
    event = NewEvent(
        _id(content, "item"), None if when is None else float(when), own, _context(content)
    )
    return _id(content, "user"), event


def _context(content: dict[str, Any]) -> Context | None:
    context: Context | None = content.get("context")
    try:
        context_text(context)
    except InputError:  # its sentence quotes the value, and reasons are counted
        raise BadEventError("context is not texts, numbers and true or false by name") from None
    return context


def _id(content: dict[str, Any], field: str) -> str:
    value = content.get(field)
    if value is None:
        raise BadEventError(f"{field} is missing")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise BadEventError(f"{field} is neither text nor an integer")
    try:
        return check_new_id(str(value))
    except InputError as error:
        raise BadEventError(f"{field}: {error}") from None
