"""What the hot routes do with a body, and how results of other threads come back to the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from pydantic import TypeAdapter
from pydantic_core import to_json

from linrec.serving.appending import Appended
from linrec.serving.engine import Engine
from linrec.serving.http import schemas as s
from linrec.serving.http.errors import response_to
from linrec.serving.http.observing import Metrics
from linrec.serving.http.routes import append_requests, recommend_requests
from linrec.serving.messages import RecommendResponse


class HotRoute:
    """How one route reads bodies, asks the engine and writes responses."""

    def __init__(self, kind: Any, batch: type, enqueue: Callable[..., None]) -> None:
        self.adapter: TypeAdapter[Any] = TypeAdapter(kind)
        self.batch, self.enqueue = batch, enqueue

    def requests(self, body: Any) -> list[Any]:
        raise NotImplementedError

    def content(self, results: Sequence[Any]) -> list[dict[str, Any]]:
        raise NotImplementedError

    def response(self, parsed: Any, results: Sequence[Any]) -> tuple[int, bytes] | None:
        """Status and body; None where only the whole application can respond."""
        for each in results:
            if each is None:
                return None
            if isinstance(each, Exception):
                error = response_to(each)
                return error.status_code, bytes(error.body)
        content = self.content(results)
        return 200, to_json({"batch": content} if isinstance(parsed, self.batch) else content[0])


class HotEvents(HotRoute):
    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        super().__init__(s.EventsRequest, s.EventsBatch, engine.enqueue_appends)
        self._appended = metrics.events.labels("appended")
        self._duplicates = metrics.events.labels("duplicate")

    def requests(self, body: Any) -> list[Any]:
        return append_requests(body)

    def content(self, results: Sequence[Appended]) -> list[dict[str, Any]]:
        self._appended.inc(sum(each.appended for each in results))
        self._duplicates.inc(sum(each.duplicates for each in results))
        return [_appended(each) for each in results]


class HotRecommendations(HotRoute):
    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        super().__init__(
            s.RecommendationRequest, s.RecommendationBatch, engine.enqueue_recommendations
        )
        self._count = cache(metrics.recommendations.labels)

    def requests(self, body: Any) -> list[Any]:
        return recommend_requests(body)

    def content(self, results: Sequence[RecommendResponse]) -> list[dict[str, Any]]:
        for each in results:
            self._count(each.source).inc()
        return [_recommendation(each) for each in results]


def _appended(result: Appended) -> dict[str, Any]:
    made = {
        "user": result.user, "appended": result.appended, "duplicates": result.duplicates,
        "events": result.events,
    }  # fmt: skip
    return made | {"too_old": result.too_old} if result.too_old else made


def _recommendation(result: RecommendResponse) -> dict[str, Any]:
    items = [{"item": each.item, "title": each.title, "score": each.score} for each in result.items]
    return {
        "user": result.user, "source": result.source, "items": items, "notes": result.notes,
    }  # fmt: skip


class Taker(Protocol):
    def take(self, place: int, result: Any) -> None:
        """On the event loop."""


class Arrivals:
    """Results of other threads, handed to the event loop in one piece per batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._scheduled = loop, False
        self._arrived: deque[tuple[Taker, int, Any]] = deque()

    def deliver(self, waiting: Taker, place: int, result: Any) -> None:
        self._arrived.append((waiting, place, result))
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        self._scheduled = False  # first: what arrives from now on schedules again
        while self._arrived:
            waiting, place, result = self._arrived.popleft()
            waiting.take(place, result)


class Waiting:
    """One request's results, and a future that is done when all are there or it has taken long."""

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.results: list[Any] = [None] * count
        self.missing, self._loop = count, loop
        self.changed: asyncio.Future[None] = loop.create_future()

    def deliveries(self, arrivals: Arrivals) -> list[Callable[[Any], None]]:
        """For other threads, one for each result."""
        return [
            lambda result, place=place: arrivals.deliver(self, place, result)  # type: ignore[misc]
            for place in range(self.missing)
        ]

    def take(self, place: int, result: Any) -> None:
        self.results[place] = result
        self.missing -= 1
        if not self.missing:
            self.wake()

    def wake(self) -> None:
        if not self.changed.done():
            self.changed.set_result(None)

    def again(self) -> asyncio.Future[None]:
        """A new future for the same results."""
        self.changed = self._loop.create_future()
        return self.changed
