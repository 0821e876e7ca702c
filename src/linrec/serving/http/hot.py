"""The two routes that carry the load, without the layers that others pass through.

It responds only to requests that are right in every respect: same checks, same models
(pydantic-core reads the JSON directly), same engine. Whatever is unusual or wrong goes through the
whole application, which gives it the sentence it always gives. Responses are the same bytes of
meaning; only what they cost differs.
"""

from __future__ import annotations

import asyncio
import hmac
from threading import Event
from time import perf_counter

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from linrec.serving.batcher import BusyError, ClosedError
from linrec.serving.engine import Engine
from linrec.serving.http.access import LOCAL, digest_of
from linrec.serving.http.browsers import SECURITY_HEADERS, has_duplicate_keys
from linrec.serving.http.homes import NOT_TAKEN, Homes
from linrec.serving.http.hot_requests import (
    Arrivals,
    HotEvents,
    HotRecommendations,
    HotRoute,
    Waiting,
)
from linrec.serving.http.limits import (
    CLIENT_GONE,
    NO_RESPONSE_IN_TIME,
    InProgress,
    disconnected,
    replayed,
)
from linrec.serving.http.observing import Metrics, record
from linrec.serving.http.options import HttpOptions, is_loopback
from linrec.types import LinrecError

BODY_SECONDS = 0.05  # for a body that follows its head; after that the whole application waits
WATCH_AFTER = 0.05  # seconds after which it is worth asking whether the client is still there
HEADERS = [
    (b"content-type", b"application/json"),
    *((name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()),
]
# of browsers, or of bodies in pieces: nothing for here
UNUSUAL = (b"origin", b"sec-fetch-site", b"transfer-encoding", b"expect", b"upgrade")


class HotRoutes:
    """Pure ASGI, around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        engine: Engine,
        metrics: Metrics,
        options: HttpOptions,
        in_progress: InProgress,
        homes: Homes | None = None,
    ) -> None:
        """homes: if there are several workers."""
        self._homes = homes
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
        loop = asyncio.get_running_loop()
        if self._homes is not None and isinstance(route, HotEvents) and len(requests) == 1:
            elsewhere = self._homes.hand_on(requests[0], loop)
            if elsewhere is not None:
                refused = await self._until_there(elsewhere, Event(), receive, loop)
                status, content = refused or elsewhere.results[0]
                if status != NOT_TAKEN:
                    await _send_response(status, content, send)
                    return status
        cancelled = Event()
        waiting = Waiting(len(requests), loop)
        try:
            route.enqueue(requests, waiting.deliveries(self._arrivals_of(loop)), cancelled)
        except (BusyError, ClosedError):
            return None
        refused = await self._until_there(waiting, cancelled, receive, loop)
        response = refused or route.response(parsed, waiting.results)
        if response is not None:
            await _send_response(*response, send)
        return None if response is None else response[0]

    def _arrivals_of(self, loop: asyncio.AbstractEventLoop) -> Arrivals:
        if self._arrivals is None or self._arrivals.loop is not loop:
            self._arrivals = Arrivals(loop)
        return self._arrivals

    async def _until_there(
        self,
        waiting: Waiting,
        cancelled: Event,
        receive: Receive,
        loop: asyncio.AbstractEventLoop,
    ) -> tuple[int, bytes] | None:
        """None once all results are there, else what to respond instead."""
        self._in_progress.count += 1
        try:
            refused = await self._wait(waiting, cancelled, receive, loop)
        finally:
            self._in_progress.count -= 1
        return None if refused is None else (refused[0], to_json({"error": refused[1]}))

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


async def _send_response(status: int, body: bytes, send: Send) -> None:
    head = [(b"content-length", str(len(body)).encode()), *HEADERS]
    if status == 503:
        head.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
