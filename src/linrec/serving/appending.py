"""Events of several users, appended together: one read, one model call, one write per round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import sleep, time

from linrec.serving.contexts import Context, context_text
from linrec.serving.heads import HeadCache
from linrec.serving.ids import check_new_id
from linrec.serving.model import STRETCH, ServedModel
from linrec.serving.settings import EngineSettings
from linrec.serving.snapshot import Origin, Snapshot
from linrec.serving.stores import (
    Change,
    Event,
    Head,
    Store,
    StoredSnapshot,
    StoreError,
    new_version,
)
from linrec.serving.stores.store import MAX_SNAPSHOTS, model_of
from linrec.types import InputError

ATTEMPTS = 50  # against faster writers, each of which has stored an event
PAUSE = 0.002  # seconds, longer with every attempt


class LateEventError(InputError):
    """An event is older than the newest one, and late events are refused."""


class FutureEventError(InputError):
    """An event is further in the future than `max_future`."""


def check_not_future(when: float, settings: EngineSettings, now: float) -> None:
    """One wrong clock would make every later event of the user a late one."""
    if when > now + settings.max_future:
        raise FutureEventError(
            f"the time of an event is more than {settings.max_future:,.10g} seconds ahead of this "
            "server's clock, which is refused; send seconds since 1970 (none of this user's events "
            "in the request was taken)"
        )


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event as it was given: an id makes sending it again harmless, no time means now."""

    item: str
    time: float | None = None
    id: str | None = None
    context: Context | None = None  # what else is known of it, by name


@dataclass(frozen=True, slots=True)
class Append:
    user: str
    events: Sequence[NewEvent]


def check_ids(requests: Sequence[Append]) -> None:
    """Raise InputError if one of them must not be stored."""
    for request in requests:
        check_new_id(request.user)
        for event in request.events:
            check_new_id(event.item)
            if event.id is not None:
                check_new_id(event.id)
            context_text(event.context)


@dataclass(frozen=True, slots=True)
class Appended:
    user: str
    appended: int
    duplicates: int
    events: int  # kept of the user now
    too_old: int = 0  # left out, older than all that is kept of the user


@dataclass(slots=True)
class _Job:
    """One request, planned again on every attempt from the head as it is then."""

    position: int  # among the results
    request: Append
    head: Head | None = None
    events: Sequence[Event] = ()
    late: bool = False
    too_old: int = 0
    version: str = ""  # of the head, once this attempt is committed
    snapshot: bytes | None = None  # to be stored, if it is time to
    after: Snapshot | None = None  # the state after the request
    key: bytes = b""  # of the model whose state it is


Outcome = Appended | Exception


class Appender:
    def __init__(
        self,
        store: Store,
        heads: HeadCache,
        settings: EngineSettings,
        model: Callable[[], ServedModel | None],
    ) -> None:
        self._store, self._heads, self._settings, self._model = store, heads, settings, model

    def append(self, requests: list[Append]) -> list[Outcome]:
        """The result of each request; requests of one user keep their order."""
        results: dict[int, Outcome] = {}
        waiting = [_Job(position, request) for position, request in enumerate(requests)]
        attempt = 0
        while waiting:
            first = {
                job.request.user: job for job in reversed(waiting)
            }  # the earliest of each user
            try:
                done = self._round(list(first.values()))
            except StoreError as error:  # what earlier rounds committed stays committed
                done = dict.fromkeys((job.position for job in waiting), error)
            results |= done
            waiting = [job for job in waiting if job.position not in done]
            attempt = 0 if done else attempt + 1
            if attempt == ATTEMPTS:
                busy = StoreError("other writers kept changing the user; try again")
                results |= {job.position: busy for job in waiting}
                break
            if attempt:
                sleep(PAUSE * attempt)
        return [results[position] for position in range(len(requests))]

    def _round(self, jobs: list[_Job]) -> dict[int, Outcome]:
        """At most one request per user; those that lost to another writer have no result yet."""
        users = [job.request.user for job in jobs]
        heads = self._heads.recent(users)
        done: dict[int, Outcome] = {}
        for job, head, old in zip(jobs, heads, self._known_ids(jobs, heads), strict=True):
            # nothing of an earlier attempt may be committed: another writer changed the user since
            job.head, job.version = head, new_version()
            job.snapshot = job.after = None
            try:
                self._plan(job, old)
            except (LateEventError, FutureEventError) as error:
                done[job.position] = error
                continue
            if not job.events:  # all of them were here before
                done[job.position] = self._outcome(job)
        self._leave_out_outdated(jobs, done)
        jobs = [job for job in jobs if job.position not in done and job.version]
        self._advance(jobs)
        changes = [self._change(job) for job in jobs]
        committed = self._store.commit(changes) if jobs else []
        self._heads.note(committed.count(False), len(committed))
        for job, ok in zip(jobs, committed, strict=True):
            if ok:
                done[job.position] = self._outcome(job)
            self._remember(job, ok)
        return done

    def _known_ids(self, jobs: list[_Job], heads: list[Head | None]) -> list[set[str]]:
        ids = [
            [] if head is None else [e.id for e in job.request.events if e.id is not None]
            for job, head in zip(jobs, heads, strict=True)
        ]
        if not any(ids):
            return [set() for _ in jobs]
        users = [job.request.user for job in jobs]
        return self._store.known_ids(list(zip(users, ids, strict=True)))

    def _leave_out_outdated(self, jobs: list[_Job], done: dict[int, Outcome]) -> None:
        """What is decided without a commit must have been decided on what is stored now."""
        decided = [job for job in jobs if job.position in done]
        if not decided:
            return
        users, heads = [job.request.user for job in decided], [job.head for job in decided]
        for job, right in zip(decided, self._heads.are_current(users, heads), strict=True):
            if not right:
                del done[job.position]
                job.version = ""  # not in this round

    def _remember(self, job: _Job, committed: bool) -> None:
        """The head after the commit, so that the next event need not read it."""
        user = job.request.user
        if not committed or job.after is None:
            self._heads.drop(user)
            return
        total, new = self._total(job), len(job.events)
        before = float("-inf") if job.head is None else job.head.newest
        newest = max(before, job.events[-1].time)
        others = () if job.head is None else job.head.snapshots
        kept = [replace(each, missing=each.missing + new) for each in others]
        if job.snapshot is not None:
            kept = [each for each in kept if model_of(each.content) != job.key]
            made = StoredSnapshot(job.version, total, 0, job.snapshot)
            kept = [made, *kept[: MAX_SNAPSHOTS - 1]]
        head = Head(job.version, total, newest, tuple(kept))
        states = head.latest if job.snapshot is None else head.unpacked
        states[job.key] = job.after
        self._heads.put(user, head)

    def _plan(self, job: _Job, old: set[str]) -> None:
        """Which events are new, and at what time."""
        newest = float("-inf") if job.head is None else job.head.newest
        seen, events = set(old), []
        latest, now = newest, time()
        for event in job.request.events:
            if event.id is not None and event.id in seen:
                continue
            if event.id is not None:
                seen.add(event.id)
            # an event without a time happens now, and never before the newest one
            when = max(now, latest) if event.time is None else event.time
            if event.time is not None:
                check_not_future(event.time, self._settings, now)
            latest = max(latest, when)
            events.append(Event(event.item, when, event.id, context_text(event.context)))
        job.late = any(event.time < newest for event in events)
        if job.late and self._settings.late == "refuse":
            raise LateEventError(
                "an event is older than the user's newest one, and late events are refused; none "
                "of this user's events in the request was taken"
            )
        if job.late and self._settings.late == "append":
            events = [replace(event, time=max(event.time, newest)) for event in events]
            job.late = False
        job.events = sorted(events, key=lambda event: event.time)
        self._leave_out_too_old(job)

    def _leave_out_too_old(self, job: _Job) -> None:
        """Late events that would be the first to be deleted, because the user has enough newer."""
        job.too_old = 0
        surplus = len(job.events) + (job.head.events if job.head else 0)
        surplus -= self._settings.keep_events
        if not job.late or surplus <= 0:
            return
        kept = self._store.oldest(job.request.user, surplus)
        times = [*((time, -1) for time in kept), *((e.time, n) for n, e in enumerate(job.events))]
        gone = {place for _, place in sorted(times, key=lambda each: each[0])[:surplus]}
        events = [event for place, event in enumerate(job.events) if place not in gone]
        job.too_old = len(job.events) - len(events)
        job.events = events
        assert job.head is not None
        job.late = any(event.time < job.head.newest for event in events)

    def _advance(self, jobs: list[_Job]) -> None:
        """Update each state where that is cheap; others are rebuilt when they are needed."""
        model = self._model()
        if model is None or not model.streams:  # states follow when they are needed
            return
        ready, users = [], []
        for job in jobs:
            snapshot, behind = self._state(model, job)
            if not job.late and (job.head is None or snapshot is not None):
                ready.append(job)
                users.append((snapshot, model.past((*behind, *job.events))))
        if ready:
            for job, after in zip(ready, model.advance(users), strict=True):
                job.after, job.key = after, model.key
                if self._is_to_be_stored(model, job):
                    job.snapshot = model.write(after, Origin(job.version, self._total(job)))

    def _is_to_be_stored(self, model: ServedModel, job: _Job) -> bool:
        """Not with every event of a user in memory: a reader catches up with a few of them."""
        stored = None if job.head is None else job.head.snapshot_of(model.key)
        if job.head is None or stored is None:
            return True
        if stored.missing and model.key not in job.head.latest:  # it had to be caught up
            return True
        # no event that the stored state lacks may be deleted
        most = min(self._settings.state_every, self._settings.keep_events)
        return stored.missing + len(job.events) >= most or not self._heads.keeps

    def _state(self, model: ServedModel, job: _Job) -> tuple[Snapshot | None, list[Event]]:
        """The state to advance, and events that a server with another model stored since."""
        if job.head is None or job.late:
            return None, []
        snapshot, missing = model.read_behind(job.head)
        if snapshot is None or not missing:
            return snapshot, []
        if missing > STRETCH:  # the next reader catches up
            return None, []
        return snapshot, self._store.history(job.request.user, missing)

    def _change(self, job: _Job) -> Change:
        version = None if job.head is None else job.head.version
        keep = self._settings.keep_events
        return Change(job.request.user, version, job.events, job.snapshot, keep, job.version)

    def _total(self, job: _Job) -> int:
        """Events kept of the user after the request."""
        before = 0 if job.head is None else job.head.events
        new = len(job.events)
        return min(before + new, self._settings.keep_events) if new else before

    def _outcome(self, job: _Job) -> Appended:
        user, new = job.request.user, len(job.events)
        duplicates = len(job.request.events) - new - job.too_old
        return Appended(user, new, duplicates, self._total(job), job.too_old)
