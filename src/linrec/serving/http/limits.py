"""What one request may cost: bytes, seconds, and a place among those processed at the same time."""

from __future__ import annotations

import asyncio
from threading import Event
from time import perf_counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from linrec.serving.cancellation import new_scope
from linrec.serving.http.browsers import has_duplicate_keys, is_json
from linrec.serving.http.errors import error_response
from linrec.serving.http.observing import LOG
from linrec.serving.http.options import HttpOptions
from linrec.serving.http.paths import BadPathError, decoded_path

CLIENT_GONE = 499  # recorded in logs and metrics; nobody receives it


NO_RESPONSE_IN_TIME = (
    "no response in time; it may still be carried out: events with ids can be resent"
)


class InProgress:
    """How many requests are being processed, whoever does it."""

    def __init__(self) -> None:
        self.count = 0


class RefusedError(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        self.status, self.sentence = status, sentence


class RequestLimits:
    """Pure ASGI, around the routes."""

    def __init__(self, app: ASGIApp, options: HttpOptions, in_progress: InProgress) -> None:
        self._app, self._options, self._in_progress = app, options, in_progress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = _Response(send)
        try:
            scope["path"] = decoded_path(scope)
            body = await self._body(scope, receive)
            _check_json(body, Headers(scope=scope))
            await self._process(scope, body, receive, response)
        except BadPathError as error:
            await response.refuse(RefusedError(422, str(error)), scope, receive)
        except RefusedError as refused:
            await response.refuse(refused, scope, receive)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        limit = self._options.max_body
        too_large = RefusedError(413, f"a request body may have {limit:,} bytes at most; send less")
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdigit() and int(announced[:20]) > limit:
            raise too_large
        body = bytearray()
        until = perf_counter() + self._options.timeout
        while True:
            message = await _in_time(receive, until)
            body += message.get("body", b"")
            if len(body) > limit:
                raise too_large
            if not message.get("more_body"):
                return bytes(body)

    async def _process(
        self, scope: Scope, body: bytes, receive: Receive, response: _Response
    ) -> None:
        if self._in_progress.count >= self._options.max_requests:
            raise RefusedError(503, "too many requests are being processed; try again later")
        cancelled = new_scope()
        task = asyncio.ensure_future(self._app(scope, _once(body, receive), response.send))
        self._in_progress.count += 1
        task.add_done_callback(self._finished)
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await self._wait(task, gone, cancelled)
        finally:
            gone.cancel()

    async def _wait(
        self, task: asyncio.Future[None], gone: asyncio.Future[None], cancelled: Event
    ) -> None:
        """What a thread has begun cannot be stopped, for it may be writing; the rest is."""
        try:
            done, _ = await asyncio.wait(
                {task, gone}, timeout=self._options.timeout, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:  # the server ends
            done = set()
        if task in done:
            task.result()
            return
        cancelled.set()
        task.cancel()
        if gone in done:
            raise RefusedError(CLIENT_GONE, "the client closed the connection")
        raise RefusedError(503, NO_RESPONSE_IN_TIME)

    def _finished(self, task: asyncio.Future[None]) -> None:
        self._in_progress.count -= 1
        if not task.cancelled() and task.exception() is not None:
            LOG.debug("a request failed")  # the exception is logged where it is answered


def _check_json(body: bytes, headers: Headers) -> None:
    if not body:
        return
    if not is_json(headers):  # others can be sent by pages of any site
        raise RefusedError(415, "a body must be sent as Content-Type: application/json")
    if has_duplicate_keys(body):
        raise RefusedError(422, "the body has the same key twice in one object; send it once")


class _Response:
    """Lets one response through: the route's own, or a refusal if that comes too late."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = self._refused = False

    async def send(self, message: Message) -> None:
        if self._refused:
            return
        self._started = True
        await self._send(message)

    async def refuse(self, refused: RefusedError, scope: Scope, receive: Receive) -> None:
        self._refused = True
        if self._started:  # a second response would be an error
            return
        # what was not read of the request is not to be taken for the next one
        headers = {"Connection": "close"} if refused.status in (408, 413) else {}
        response = error_response(refused.status, refused.sentence, headers)
        await response(scope, receive, self._send)


async def _in_time(receive: Receive, until: float) -> Message:
    try:
        message = await asyncio.wait_for(receive(), max(until - perf_counter(), 0.001))
    except asyncio.TimeoutError:
        raise RefusedError(408, "the request did not arrive in time; send it again") from None
    if message["type"] == "http.disconnect":
        raise RefusedError(CLIENT_GONE, "the client closed the connection")
    return message


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _once(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, then whatever the connection delivers."""
    return replayed({"type": "http.request", "body": body, "more_body": False}, receive)


def replayed(message: Message, receive: Receive) -> Receive:
    """That message first, then whatever the connection delivers."""
    first: Message | None = message

    async def replay() -> Message:
        nonlocal first
        if first is None:
            return await receive()
        given, first = first, None
        return given

    return replay
