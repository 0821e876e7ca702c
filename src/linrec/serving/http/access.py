"""Who may send requests: with a token whoever has it, without one only this machine."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import Counter
from time import monotonic

from fastapi.security.utils import get_authorization_scheme_param
from starlette.applications import Starlette
from starlette.authentication import (
    AuthCredentials,
    AuthenticationBackend,
    AuthenticationError,
    BaseUser,
    SimpleUser,
)
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from linrec.serving.http.errors import error_response
from linrec.serving.http.options import HttpOptions, is_loopback

OPEN = ("/healthz", "/readyz", "/docs", "/openapi.json", "/")
OPEN_UNDER = ("/page/", "/docs/")
TRUSTED = "linrec.trusted_host"  # in the scope
FREE_ATTEMPTS = 20  # wrong tokens per address and window
BRAKE_WINDOW, BRAKE_SECONDS = 60.0, 1.0
BRAKE_ADDRESSES = 10_000  # counted at the same time
LOCAL = ("localhost", "127.0.0.1", "[::1]")


class Brake:
    """Responds late to an address that sends many wrong tokens; a right one is never delayed."""

    def __init__(self) -> None:
        self._wrong: Counter[str] = Counter()
        self._since = monotonic()

    async def wrong_token(self, address: str) -> None:
        if monotonic() - self._since > BRAKE_WINDOW or len(self._wrong) > BRAKE_ADDRESSES:
            self._wrong.clear()
            self._since = monotonic()
        self._wrong[address] += 1
        if self._wrong[address] > FREE_ATTEMPTS:
            await asyncio.sleep(BRAKE_SECONDS)


class BearerToken(AuthenticationBackend):
    def __init__(self, token: str) -> None:
        self._digest = digest_of(token)
        self._brake = Brake()

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        path: str = conn.scope["path"]
        if path in OPEN or path.startswith(OPEN_UNDER):
            return None
        scheme, token = get_authorization_scheme_param(conn.headers.get("authorization"))
        right = hmac.compare_digest(digest_of(token.strip()), self._digest)
        if scheme.lower() != "bearer" or not right:
            await self._brake.wrong_token("" if conn.client is None else conn.client.host)
            raise AuthenticationError("this server needs a token: Authorization: Bearer TOKEN")
        return AuthCredentials(["token"]), SimpleUser("client")


class TrustedHosts:
    """Starlette's check of the Host header, with a refusal like all others."""

    def __init__(self, app: ASGIApp, hosts: list[str]) -> None:
        self._app = app
        self._check = TrustedHostMiddleware(_trust, allowed_hosts=hosts, www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._check(scope, receive, _discard)
            if not scope.get(TRUSTED):
                sentence = "without a token this server accepts requests to localhost only"
                await error_response(421, sentence)(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _trust(scope: Scope, receive: Receive, send: Send) -> None:
    del receive, send
    scope[TRUSTED] = True


async def _discard(message: Message) -> None:
    del message


def restrict_access(app: Starlette, options: HttpOptions) -> None:
    if options.token is not None:
        backend = BearerToken(options.token)
        app.add_middleware(AuthenticationMiddleware, backend=backend, on_error=_unauthorized)
    elif is_loopback(options.host):
        # a web page elsewhere may give this machine a name of its own and read the responses
        app.add_middleware(TrustedHosts, hosts=[*LOCAL, options.host])


def _unauthorized(conn: HTTPConnection, error: AuthenticationError) -> Response:
    del conn
    return error_response(401, str(error), {"WWW-Authenticate": "Bearer"})


def digest_of(token: str) -> bytes:
    """Of equal length whatever the token, so that the time of the comparison reveals nothing."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
