"""Recommendations for users whose events come one by one. No HTTP here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event, Lock
from time import time as now
from typing import TYPE_CHECKING, Any

import numpy as np

from linrec.evaluation import Reranker
from linrec.serving import ranking
from linrec.serving.added import AddedItems, TakesItems
from linrec.serving.appending import (
    Append,
    Appended,
    Appender,
    NewEvent,
    check_ids,
    check_not_future,
)
from linrec.serving.batcher import Batcher, LongWork
from linrec.serving.canary import check_canary, check_finite
from linrec.serving.explaining import leave_one_out
from linrec.serving.heads import HeadCache
from linrec.serving.ids import check_new_id
from linrec.serving.lanes import Lanes
from linrec.serving.messages import (
    Contribution,
    Explanation,
    Item,
    More,
    RecommendRequest,
    RecommendResponse,
    StateStatus,
    UnknownError,
    UserView,
)
from linrec.serving.model import STRETCH, ServedModel
from linrec.serving.past import (
    HistoryEvent,
    Past,
    RequestTime,
    given_events,
    later_events,
    seconds_of,
)
from linrec.serving.recommending import (
    NOTHING,
    Known,
    Recommending,
    items_of,
    known_of,
    known_of_events,
)
from linrec.serving.rules import SharedRules
from linrec.serving.settings import EngineSettings
from linrec.serving.snapshot import Origin, Snapshot
from linrec.serving.stores import Change, Forgotten, Head, Store, StoreError, new_version
from linrec.types import InputError, Seen, argument

if TYPE_CHECKING:
    from typing_extensions import Unpack

Deliver = Callable[[Any], None]

SECONDS_OF_DAY = 86_400
EXPIRE_AT_ONCE = 100  # users; other writers wait meanwhile


class Engine(TakesItems):
    """One model, one store, any number of threads.

    Examples:
        >>> from linrec.serving import Engine, NewEvent, open_store
        >>> engine = Engine("run", open_store("memory"))
        >>> engine.append("ann", [NewEvent("film-001", id="e1"), NewEvent("film-002")]).appended
        2
        >>> engine.append("ann", [NewEvent("film-001", id="e1")]).appended  # known already
        0
        >>> response = engine.recommend("ann", k=3, exclude=["film-003"])
        >>> response.source, len(response.items)
        ('model', 3)
        >>> [event.item for event in engine.explain("film-004", "ann").events]
        ['film-001', 'film-002']
        >>> len(engine.similar("film-001", k=2))
        2
        >>> engine.user("ann").events
        2
        >>> engine.forget("ann").existed
        True
        >>> engine.close()
    """

    def __init__(
        self, run: str | Path, store: Store, settings: EngineSettings | None = None
    ) -> None:
        self.settings = settings or EngineSettings()
        self.store = store
        if self.settings.unsafe_store == "refuse":
            for warning in store.warnings():
                raise InputError(f"{warning}, or allow it with {argument('unsafe_store', 'warn')}")
        self.added = AddedItems(store)
        self._model = self.added.extended(self._opened(run))
        self._fit: ServedModel | None = None  # the model that was found to be fit
        self._reloading = Lock()
        self._long_work = LongWork(self.settings.long_work, self.settings.max_waiting_long)
        self.rebuilt = 0
        self._heads = HeadCache(store, self.settings.cache_mb << 20)
        self.rules = SharedRules(store)
        appender = Appender(store, self._heads, self.settings, lambda: self.model)
        self._appends = Lanes(lambda name: self._batcher(appender.append, name), store.shards)
        self._recommends: Batcher[RecommendRequest, RecommendResponse | None] = self._batcher(
            lambda requests: self._recommending().respond(requests), "recommend"
        )

    def _opened(self, run: str | Path) -> ServedModel:
        model = ServedModel(run, self.settings.ann_from, self.settings.seen)
        if self.settings.diversity:  # refused now, and not with every request
            Reranker.of(self.settings.diversity, model.catalogue.similarity)
        return model

    def _batcher(self, work: Callable[[list[Any]], Sequence[Any]], name: str) -> Batcher[Any, Any]:
        given = self.settings
        return Batcher(
            work,
            size=given.batch_size,
            wait=given.batch_wait,
            max_waiting=given.max_waiting,
            name=name,
        )

    def append(self, user: str, events: Sequence[NewEvent]) -> Appended:
        """Keep events and advance the user's state; an event id that is known is left out."""
        return self.append_many([Append(user, events)])[0]

    def append_many(self, requests: Sequence[Append]) -> list[Appended]:
        check_ids(requests)
        return self._appends.submit(requests)

    def enqueue_appends(
        self, requests: Sequence[Append], deliver: Sequence[Deliver], scope: Event | None = None
    ) -> None:
        """`append_many` without waiting: each result, or exception, is delivered when it is there.

        By another thread. scope: set once nobody waits any more. The ids must be checked.
        """
        self._appends.enqueue(requests, deliver, scope)

    def recommend(
        self,
        user: str | None = None,
        k: int = 10,
        *,
        history: Sequence[HistoryEvent] | None = None,
        exclude: Sequence[str] = (),
        only: Sequence[str] | None = None,
        where: Mapping[str, Sequence[Any]] | None = None,
        seen: Seen | None = None,
        at: RequestTime = None,
        **more: Unpack[More],
    ) -> RecommendResponse:
        """The k items that the user, or a user with this history, will most likely want next.

        where: features of the items, each with the values of which an item must have one. seen:
        "hide" leaves out what the user has had, "keep" ranks it too; else as settings or run say.
        at: when, in seconds; now if left out, or "unknown". Only models that read time depend on
        it, and on the times of the history. More, as in `RecommendRequest`: then, rules, max_per,
        diversity.
        """
        request = RecommendRequest(
            user=user, history=history, k=k, exclude=exclude, only=only, where=where or {},
            seen=seen, at=at, **more,
        )  # fmt: skip
        return self.recommend_many([request])[0]

    def recommend_many(self, requests: Sequence[RecommendRequest]) -> list[RecommendResponse]:
        responses = self._recommends.submit(requests)
        slow = [row for row, response in enumerate(responses) if response is None]
        for row in slow:
            responses[row] = self.recommend_slowly(requests[row])
        return [response for response in responses if response is not None]

    def enqueue_recommendations(
        self,
        requests: Sequence[RecommendRequest],
        deliver: Sequence[Deliver],
        scope: Event | None = None,
    ) -> None:
        """As `enqueue_appends`; None is delivered where only `recommend_slowly` can respond."""
        self._recommends.enqueue(requests, deliver, scope)

    def _recommending(self) -> Recommending:
        return Recommending(self.model, self._heads, self.rules, self.settings.diversity)

    def recommend_slowly(self, request: RecommendRequest) -> RecommendResponse:
        """Of a history that has to be read or encoded first, in the caller's own thread."""
        recommending = self._recommending()
        return recommending.ranked([request], [self._past(recommending.model, request)])[0]

    def _past(self, model: ServedModel, request: RecommendRequest) -> Known:
        """What is known of a user: the stored state if there is one, else the events."""
        if request.history is not None:
            return self._of_events(model, model.past(given_events(request.history)), request.at)
        assert request.user is not None
        then = model.past(later_events(request.then, request.at))
        if self.store.versions([request.user])[0] is None:
            return self._of_events(model, then, request.at) if len(then) else NOTHING
        if not model.streams:
            past = self._stored(model, request.user).followed_by(then)
            return self._of_events(model, past, request.at)
        snapshot = self._rebuild(model, request.user)
        return known_of(model.advance([(snapshot, then)])[0] if len(then) else snapshot)

    def _of_events(self, model: ServedModel, past: Past, at: RequestTime) -> Known:
        """Short histories are encoded at once; a long one waits for its turn."""
        if len(past) <= STRETCH:
            return known_of_events(model, past)
        with self._long_work.turn():
            hidden = model.encode([past], [seconds_of(at)])[0]
            return Known(hidden, np.unique(past.items), model.counts(past))

    def _stored(self, model: ServedModel, user: str) -> Past:
        return model.past(self.store.history(user))

    def _rebuild(self, model: ServedModel, user: str) -> Snapshot:
        """A state from the stored history, in the caller's own thread."""
        with self._long_work.turn():
            head = self.store.heads([user])[0]
            if head is None:  # forgotten meanwhile
                return model.advance([(None, Past.of([]))])[0]
            current = model.read(head)  # another thread may have rebuilt it meanwhile
            if current is not None:
                return current
            made = self._catch_up(model, user, head)
            if made is None:
                made = model.advance([(None, self._stored(model, user))])[0]
                self.rebuilt += 1
            self._keep(model, user, head, made)
            return made

    def _catch_up(self, model: ServedModel, user: str, head: Head) -> Snapshot | None:
        """The state after events that a server with another model stored; None if it is lost."""
        snapshot, missing = model.read_behind(head)
        if snapshot is None:
            return None
        newest = self.store.history(user, missing)
        now = self.store.heads([user])[0]
        if now is None or now.version != head.version:  # these may not be the missing ones
            return None
        return model.advance([(snapshot, model.past(newest))])[0]

    def _keep(self, model: ServedModel, user: str, head: Head, made: Snapshot) -> None:
        """Only if no event came in between; otherwise the next reader rebuilds again."""
        keep, version = self.settings.keep_events, new_version()
        content = model.write(made, Origin(version, min(head.events, keep)))
        with contextlib.suppress(StoreError):  # a store that cannot write still serves readers
            self.store.commit([Change(user, head.version, (), content, keep, version)])

    def explain(
        self,
        item: str,
        user: str | None = None,
        *,
        history: Sequence[HistoryEvent] | None = None,
        at: RequestTime = None,
    ) -> Explanation:
        """By how much each of the newest events raised the score (`explaining.leave_one_out`)."""
        model = self._model
        request = RecommendRequest(user=user, history=history, at=at)
        index = _index(model, item)
        if request.history is None:
            assert request.user is not None
            past = self._stored(model, request.user)
        else:
            past = model.past(given_events(request.history))
        if not len(past):
            raise UnknownError(
                "no past event of an item the model knows, so there is nothing to explain; append "
                "events first"
            )
        with self._long_work.turn():
            score, parts = leave_one_out(model, past, index, seconds_of(at))
        newest_items = zip(past.items[len(past) - len(parts) :], parts, strict=True)
        return Explanation(
            item,
            score,
            tuple(
                Contribution(model.ids[index - 1], model.titles[index - 1], part)
                for index, part in newest_items
            ),
        )

    def similar(self, item: str, k: int = 10) -> tuple[Item, ...]:
        """The items whose vectors point the same way, by cosine."""
        model = self._model
        off = self.rules.off_in(model)
        return items_of(model, ranking.similar(model, _index(model, item), k, off))

    def user(self, user: str, newest: int = 100) -> UserView:
        model = self._model
        head = self._heads.current([user])[0]  # what is in memory may be further
        if head is None:
            raise UnknownError("there is no such user")
        events = self.store.history(user, newest)
        titled = tuple((event, model.title(event.item)) for event in events)
        return UserView(user, head.events, titled, _state(model, head))

    def forget(self, user: str) -> Forgotten:
        """Remove all that is kept of a user; false if there was nothing."""
        self._heads.drop(user)
        return self.store.forget(user)

    def delete_event(self, user: str, event_id: str) -> Forgotten:
        """Remove one event, as if it had never happened; false if there was no such event."""
        return self.store.replace_event(user, event_id, None)

    def correct_event(
        self, user: str, event_id: str, item: str, time: float | None = None
    ) -> Forgotten:
        """Give one event another item, and another time if there is one."""
        if time is not None:
            check_not_future(time, self.settings, now())
        done = self.store.replace_event(user, event_id, check_new_id(item), time)
        if not done:
            raise UnknownError("there is no such event")
        return done

    def reload(self, run: str | Path | None = None) -> bool:
        """Serve another run, or the same folder if it has changed; whether it did.

        Requests in progress end with the model they began with. A run that cannot be read or fails
        its canary raises InputError, and the old one stays.
        """
        with self._reloading:
            folder = self._model.run if run is None else run
            model = self._opened(folder)
            if model.fingerprint == self._model.fingerprint:
                return False
            model = self.added.extended(model)
            check_canary(model, self._model, self.store)
            self._model = model
            return True

    def expire(self) -> int:
        """Forget users without an event for longer than `user_ttl`; how many."""
        if self.settings.user_ttl is None:
            return 0
        before, total = now() - self.settings.user_ttl * SECONDS_OF_DAY, 0
        while some := self.store.expire(before, EXPIRE_AT_ONCE):
            total += some
        return total

    def check(self) -> None:
        """Raise if the model or the store cannot serve, or there is no room to store."""
        self.store.check()
        if self._model is not self._fit:
            check_finite(self._model)
            self._fit = self._model

    def close(self) -> None:
        """Finish what was taken, then close the store."""
        self._appends.close()
        self._recommends.close()
        self.store.close()


def _index(model: ServedModel, item: str) -> int:
    found = model.index(item)
    if found is None:
        raise UnknownError("the model does not know this item")
    return found


def _state(model: ServedModel, head: Head) -> StateStatus:
    if not model.streams:
        return "none"
    return "stale" if model.read(head) is None else "current"
