"""What a browser must not do here: send what another site wrote, or show our pages in a frame."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from linrec.serving.http.errors import error_response

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# pages load their own files only, and what is written into them cannot run
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class BrowserGuard:
    """Refuses requests of other sites' pages, and sets the headers of every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
            await send(message)

        if scope["method"] not in SAFE_METHODS and is_from_another_site(Headers(scope=scope)):
            sentence = "a page of another site may not send requests that change something here"
            await error_response(403, sentence)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


def is_from_another_site(headers: Headers) -> bool:
    """Programs send neither header; browsers send them, and pages cannot change them."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")


def is_json(headers: Headers) -> bool:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


class _DuplicateKeyError(Exception):
    """Not a ValueError, which is how json reports bodies that are not JSON."""


def has_duplicate_keys(body: bytes) -> bool:
    """Parsers differ in which of two equal keys they take, so that filters can be passed by."""
    try:
        _DECODER.decode(body.decode(json.detect_encoding(body), "surrogatepass"))  # as json.loads
    except _DuplicateKeyError:
        return True
    except (ValueError, RecursionError):  # reported where the body is read
        return False
    return False


def _no_duplicates(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise _DuplicateKeyError


# made once: making one takes as long as using it
_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates)
