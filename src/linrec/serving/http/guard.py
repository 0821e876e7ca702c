"""Before any route: who asks, how much is sent, how long it may take; and after it, a log line."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from linrec.serving.http.observing import LOG, Metrics
from linrec.serving.http.options import HttpOptions, is_loopback

OPEN = ("/healthz", "/readyz", "/docs", "/openapi.json", "/")
OPEN_UNDER = ("/page/", "/docs/")


class RefusedError(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        self.status, self.sentence = status, sentence


class Guard:
    """Pure ASGI, so that nothing is between it and the wire."""

    def __init__(self, app: ASGIApp, options: HttpOptions, metrics: Metrics) -> None:
        self._app, self._options, self._metrics = app, options, metrics
        self._token = None if options.token is None else _digest(options.token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = perf_counter()
        answer = _Answer(send)
        try:
            self._check_host(scope)
            self._check_token(scope)
            body = await self._body(scope, receive)
            await self._in_time(scope, _once(body, receive), answer)
        except RefusedError as refused:
            await answer.refuse(refused)
        finally:
            # a failure is answered outside of here, as 500
            self._record(scope, answer.status or 500, perf_counter() - begin)

    def _check_host(self, scope: Scope) -> None:
        """A web page elsewhere may give this machine a name of its own and read what it answers."""
        if self._token is not None or not is_loopback(self._options.host):
            return
        given = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        name = given.rpartition(":")[0] if given[-1:].isdigit() and ":" in given else given
        if not is_loopback(name.strip("[]")):
            raise RefusedError(421, "without a token this server answers to localhost only")

    def _check_token(self, scope: Scope) -> None:
        path: str = scope["path"]
        if self._token is None or path in OPEN or path.startswith(OPEN_UNDER):
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, token = given.partition(b" ")
        right = hmac.compare_digest(_digest(token.strip()), self._token)
        if kind.lower() != b"bearer" or not right:
            raise RefusedError(401, "this server asks for a token: Authorization: Bearer TOKEN")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        most = self._options.max_body
        too_large = RefusedError(
            413, f"a request may have {most:,} bytes at most; send less at once"
        )
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if said.isdigit() and int(said[:20]) > most:
            raise too_large
        parts: list[bytes] = []
        size = 0
        until = perf_counter() + self._options.timeout
        while True:
            try:
                message = await asyncio.wait_for(receive(), max(until - perf_counter(), 0.001))
            except asyncio.TimeoutError:
                raise RefusedError(
                    408, "the request did not arrive in time; send it again"
                ) from None
            if message["type"] == "http.disconnect":
                raise RefusedError(400, "the request broke off")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise too_large
            if not message.get("more_body"):
                return b"".join(parts)

    async def _in_time(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        """The work itself cannot be stopped, for it may be writing; the waiting can."""
        task = asyncio.ensure_future(self._app(scope, receive, answer.send))
        done, _ = await asyncio.wait({task}, timeout=self._options.timeout)
        if not done:
            task.add_done_callback(_quietly)
            raise RefusedError(
                503, "no answer in time; it may still be carried out: events with ids can be resent"
            )
        error = task.exception()
        if error is not None:
            raise error

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        self._metrics.requests.labels(route, status).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        fields = {
            "method": scope["method"], "route": route, "status": status,
            "ms": round(seconds * 1000, 2),
        }  # fmt: skip
        LOG.info("request", extra={"fields": fields})


class _Answer:
    """Lets one answer through: the app's own, or if that comes too late a refusal."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self._refused = False

    async def send(self, message: Message) -> None:
        if self._refused:
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def refuse(self, refused: RefusedError) -> None:
        self._refused = True
        if self.status:  # the app has begun to answer; a second beginning would be an error
            return
        self.status = refused.status
        body = json.dumps({"error": refused.sentence}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        if refused.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if refused.status in (408, 413):
            headers.append((b"connection", b"close"))  # what was not read is not to be read
        await self._send(
            {"type": "http.response.start", "status": refused.status, "headers": headers}
        )
        await self._send({"type": "http.response.body", "body": body})


def _once(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, then whatever the wire still says."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _digest(token: bytes) -> bytes:
    """Of equal length whatever was given, so that the comparison tells nothing."""
    return hashlib.sha256(token).digest()


def _quietly(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        LOG.error("a request failed after its time", extra={"fields": {}})
