"""The two routes that carry the load, without the layers that others pass through.

It responds only to requests that are right in every respect: same checks, same models
(pydantic-core reads the JSON directly), same engine. Whatever is unusual or wrong goes through the
whole application, which gives it the sentence it always gives. Responses are the same bytes of
meaning; only what they cost differs.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from threading import Event
from time import perf_counter
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from linrec.serving.appending import Appended
from linrec.serving.batcher import BusyError, ClosedError
from linrec.serving.engine import Engine
from linrec.serving.http import schemas as s
from linrec.serving.http.access import LOCAL, digest_of
from linrec.serving.http.browsers import SECURITY_HEADERS, has_duplicate_keys
from linrec.serving.http.errors import response_to
from linrec.serving.http.limits import (
    CLIENT_GONE,
    NO_RESPONSE_IN_TIME,
    InProgress,
    disconnected,
    replayed,
)
from linrec.serving.http.observing import Metrics, record
from linrec.serving.http.options import HttpOptions, is_loopback
from linrec.serving.http.routes import append_requests, recommend_requests
from linrec.serving.messages import RecommendResponse
from linrec.types import LinrecError

BODY_SECONDS = 0.05  # for a body that follows its head; after that the whole application waits
WATCH_AFTER = 0.05  # seconds after which it is worth asking whether the client is still there
HEADERS = [
    (b"content-type", b"application/json"),
    *((name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()),
]
# of browsers, or of bodies in pieces: nothing for here
UNUSUAL = (b"origin", b"sec-fetch-site", b"transfer-encoding", b"expect", b"upgrade")


class HotRoute:
    """How one route reads bodies, asks the engine and writes responses."""

    def __init__(self, kind: Any, batch: type, enqueue: Callable[..., None]) -> None:
        self.adapter: TypeAdapter[Any] = TypeAdapter(kind)
        self.batch, self.enqueue = batch, enqueue

    def requests(self, body: Any) -> list[Any]:
        raise NotImplementedError

    def content(self, results: Sequence[Any]) -> list[dict[str, Any]]:
        raise NotImplementedError


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


class Arrivals:
    """Results of other threads, handed to the event loop in one piece per batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._scheduled = loop, False
        self._arrived: deque[tuple[Waiting, int, Any]] = deque()

    def deliver(self, waiting: Waiting, place: int, result: Any) -> None:
        self._arrived.append((waiting, place, result))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._hand_out)

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


class HotRoutes:
    """Pure ASGI, around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        engine: Engine,
        metrics: Metrics,
        options: HttpOptions,
        in_progress: InProgress,
    ) -> None:
        self._app, self._metrics, self._options = app, metrics, options
        self._in_progress = in_progress
        self._routes: dict[str, HotRoute] = {
            "/v1/events": HotEvents(engine, metrics),
            "/v1/recommendations": HotRecommendations(engine, metrics),
        }
        self._token = None if options.token is None else digest_of(options.token)
        hosts = (*LOCAL, options.host) if is_loopback(options.host) else ()
        self._hosts = frozenset(host.strip("[]").encode() for host in hosts)
        self._arrivals: Arrivals | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope["path"]) if scope["type"] == "http" else None
        if route is None or scope["method"] != "POST" or not self._usual(scope):
            await self._app(scope, receive, send)
            return
        begin = perf_counter()
        message = await _body(receive)
        if message is None:
            await self._app(scope, receive, send)
            return
        if message["type"] != "http.request" or message.get("more_body"):
            await self._app(scope, replayed(message, receive), send)
            return
        status = await self._respond(route, message["body"], receive, send)
        if status is None:
            await self._app(scope, replayed(message, receive), send)
            return
        record(self._metrics, "POST", scope["path"], status, perf_counter() - begin)

    def _usual(self, scope: Scope) -> bool:
        """Whether nothing about the head needs a closer look."""
        size = kind = authorization = host = b""
        for name, value in scope["headers"]:
            if name == b"content-length":
                size = value
            elif name == b"content-type":
                kind = value
            elif name == b"authorization":
                authorization = value
            elif name == b"host":
                host = value
            elif name in UNUSUAL:
                return False
        if kind != b"application/json" or not size.isdigit() or len(size) > 9:
            return False
        if int(size) > self._options.max_body or scope.get("raw_path") != scope["path"].encode():
            return False
        if self._in_progress.count >= self._options.max_requests:
            return False
        if self._token is not None:
            scheme, _, token = authorization.partition(b" ")
            given = digest_of(token.strip().decode("latin-1"))
            return scheme.lower() == b"bearer" and hmac.compare_digest(given, self._token)
        return not self._hosts or host.rsplit(b":", 1)[0].strip(b"[]") in self._hosts

    async def _respond(
        self, route: HotRoute, body: bytes, receive: Receive, send: Send
    ) -> int | None:
        """The status, or None if this is for the whole application."""
        if has_duplicate_keys(body):
            return None
        try:
            parsed = route.adapter.validate_json(body)
            requests = route.requests(parsed)
        except (ValidationError, LinrecError):
            return None
        cancelled = Event()
        loop = asyncio.get_running_loop()
        waiting = Waiting(len(requests), loop)
        try:
            route.enqueue(requests, self._deliveries(waiting, loop), cancelled)
        except (BusyError, ClosedError):
            return None
        self._in_progress.count += 1
        try:
            refused = await self._wait(waiting, cancelled, receive, loop)
        finally:
            self._in_progress.count -= 1
        if refused is not None:
            await _send_error(refused, send)
            return refused[0]
        return await self._send(route, parsed, waiting.results, send)

    def _deliveries(
        self, waiting: Waiting, loop: asyncio.AbstractEventLoop
    ) -> list[Callable[[Any], None]]:
        if self._arrivals is None or self._arrivals._loop is not loop:
            self._arrivals = Arrivals(loop)
        deliver = self._arrivals.deliver
        return [
            lambda result, place=place: deliver(waiting, place, result)  # type: ignore[misc]
            for place in range(len(waiting.results))
        ]

    async def _wait(
        self,
        waiting: Waiting,
        cancelled: Event,
        receive: Receive,
        loop: asyncio.AbstractEventLoop,
    ) -> tuple[int, str] | None:
        """Until all results are there; a status and a sentence if they do not come in time."""
        timer = loop.call_later(WATCH_AFTER, waiting.wake)
        try:
            await waiting.changed
        except asyncio.CancelledError:  # the server ends
            cancelled.set()
            raise
        finally:
            timer.cancel()
        if not waiting.missing:
            return None
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            left = max(self._options.timeout - WATCH_AFTER, 0)
            await asyncio.wait(
                {waiting.again(), gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            cancelled.set()
            raise
        finally:
            gone.cancel()
        if not waiting.missing:
            return None
        cancelled.set()
        if gone.done() and not gone.cancelled():
            return CLIENT_GONE, "the client closed the connection"
        return 503, NO_RESPONSE_IN_TIME

    async def _send(
        self, route: HotRoute, parsed: Any, results: list[Any], send: Send
    ) -> int | None:
        for each in results:
            if each is None:
                return None
            if isinstance(each, Exception):
                error = response_to(each)
                await _send_error((error.status_code, ""), send, bytes(error.body))
                return error.status_code
        content = route.content(results)
        batch = isinstance(parsed, route.batch)
        await _send_body(200, to_json({"batch": content} if batch else content[0]), send)
        return 200


async def _body(receive: Receive) -> Message | None:
    """The first message, which is mostly there already; None if it is not there soon."""
    arriving = receive()
    try:
        arriving.send(None)  # type: ignore[attr-defined]
    except StopIteration as done:
        message: Message = done.value
        return message
    arriving.close()  # type: ignore[attr-defined]
    try:
        return await asyncio.wait_for(receive(), BODY_SECONDS)
    except asyncio.TimeoutError:
        return None


async def _send_error(refused: tuple[int, str], send: Send, body: bytes | None = None) -> None:
    status, sentence = refused
    more = [(b"retry-after", b"1")] if status == 503 else []
    await _send_body(status, to_json({"error": sentence}) if body is None else body, send, more)


async def _send_body(
    status: int, body: bytes, send: Send, more: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    size = (b"content-length", str(len(body)).encode())
    await send(
        {"type": "http.response.start", "status": status, "headers": [size, *HEADERS, *more]}
    )
    await send({"type": "http.response.body", "body": body})
