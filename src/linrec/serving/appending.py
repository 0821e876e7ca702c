"""Events of several users, appended together: one read, one model call, one write a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import sleep, time

from linrec.serving.model import ServedModel
from linrec.serving.settings import EngineSettings
from linrec.serving.stores import Change, Event, Head, Store, StoreError
from linrec.types import InputError

ATTEMPTS = 50  # against writers that are faster; each of them has got an event in
PAUSE = 0.002  # seconds, longer with every attempt


class LateEventError(InputError):
    """An event is older than the newest, and the policy refuses such."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event as it was given: an id makes sending it again harmless, no time means now."""

    item: str
    time: float | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Append:
    user: str
    events: Sequence[NewEvent]


@dataclass(frozen=True, slots=True)
class Appended:
    user: str
    appended: int
    duplicates: int
    events: int  # kept of the user now


@dataclass(slots=True)
class _Job:
    place: int  # among the answers
    asked: Append
    head: Head | None = None
    events: Sequence[Event] = ()
    late: bool = False
    snapshot: bytes | None = None


Outcome = Appended | Exception


class Appender:
    def __init__(
        self, store: Store, settings: EngineSettings, model: Callable[[], ServedModel]
    ) -> None:
        self._store, self._settings, self._model = store, settings, model

    def append(self, requests: list[Append]) -> list[Outcome]:
        """What became of each; requests of one user in the order they came."""
        answers: dict[int, Outcome] = {}
        waiting = [_Job(place, asked) for place, asked in enumerate(requests)]
        attempt = 0
        while waiting:
            first = {job.asked.user: job for job in reversed(waiting)}  # the earliest of each user
            try:
                done = self._round(list(first.values()))
            except StoreError as error:  # earlier rounds are kept, and are answered so
                done = dict.fromkeys((job.place for job in waiting), error)
            answers |= done
            waiting = [job for job in waiting if job.place not in done]
            attempt = 0 if done else attempt + 1
            if attempt == ATTEMPTS:
                busy = StoreError("other writers kept changing the user; try again")
                answers |= {job.place: busy for job in waiting}
                break
            if attempt:
                sleep(PAUSE * attempt)
        return [answers[place] for place in range(len(requests))]

    def _round(self, jobs: list[_Job]) -> dict[int, Outcome]:
        """At most one request a user; those that another writer overtook have no answer yet."""
        heads = self._store.heads([job.asked.user for job in jobs])
        ids = [[event.id for event in job.asked.events if event.id is not None] for job in jobs]
        kept = [[] if head is None else some for head, some in zip(heads, ids, strict=True)]
        users = [job.asked.user for job in jobs]
        known = self._store.known_ids(list(zip(users, kept, strict=True)))
        done: dict[int, Outcome] = {}
        for job, head, old in zip(jobs, heads, known, strict=True):
            job.head = head
            try:
                self._plan(job, old)
            except LateEventError as error:
                done[job.place] = error
                continue
            if not job.events:  # all of them were here before
                done[job.place] = self._outcome(job)
        jobs = [job for job in jobs if job.place not in done]
        self._advance(jobs)
        for job, ok in zip(jobs, self._store.commit([self._change(j) for j in jobs]), strict=True):
            if ok:
                done[job.place] = self._outcome(job)
        return done

    def _plan(self, job: _Job, old: set[str]) -> None:
        """Which events are new, and at what time."""
        newest = float("-inf") if job.head is None else job.head.newest
        seen, events = set(old), []
        latest, now = newest, time()
        for event in job.asked.events:
            if event.id is not None and event.id in seen:
                continue
            if event.id is not None:
                seen.add(event.id)
            # what has no time happens now, and never before what has happened already
            when = max(now, latest) if event.time is None else event.time
            latest = max(latest, when)
            events.append(Event(event.item, when, event.id))
        job.late = any(event.time < newest for event in events)
        if job.late and self._settings.late == "refuse":
            raise LateEventError(
                "an event is older than the user's newest one, and late events are refused; none "
                "of this user's events in the request was taken"
            )
        if job.late and self._settings.late == "append":
            events = [Event(event.item, max(event.time, newest), event.id) for event in events]
            job.late = False
        job.events = sorted(events, key=lambda event: event.time)

    def _advance(self, jobs: list[_Job]) -> None:
        """Bring each state up to date where that is cheap; others are made anew when needed."""
        model = self._model()
        if not model.streams:
            return
        ready, users = [], []
        for job in jobs:
            snapshot = None if job.head is None else model.read(job.head.snapshot)
            if not job.late and (job.head is None or snapshot is not None):
                ready.append(job)
                users.append((snapshot, model.indices(event.item for event in job.events)))
        if ready:
            for job, after in zip(ready, model.advance(users), strict=True):
                job.snapshot = model.write(after)

    def _change(self, job: _Job) -> Change:
        version = None if job.head is None else job.head.version
        keep = self._settings.keep_events
        return Change(job.asked.user, version, job.events, job.snapshot, keep)

    def _outcome(self, job: _Job) -> Appended:
        before = 0 if job.head is None else job.head.events
        new = len(job.events)
        total = min(before + new, self._settings.keep_events) if new else before
        return Appended(job.asked.user, new, len(job.asked.events) - new, total)
