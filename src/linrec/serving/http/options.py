"""The settings of the HTTP server, and what it refuses to start with."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from linrec.settings import check, setting
from linrec.types import InputError, argument

TOKEN_VARIABLE = "LINREC_TOKEN"
MIN_TOKEN = 16


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8000, "Port to listen on; 0 takes any that is free.", min=0, max=65535)
    token: str | None = None
    workers: int = setting(
        1,
        "Number of processes that serve the address together; more than one needs a store that "
        "they can share, and the other limits here hold for each of them.",
        min=1,
        max=256,
    )
    max_body: int = setting(1_048_576, "Maximum size of a request body in bytes.", min=1)
    max_header_bytes: int = setting(
        32_768, "Maximum size of a request's first line and headers in bytes.", min=1_024
    )
    max_headers: int = setting(100, "Maximum number of headers of a request.", min=1)
    timeout: float = setting(
        30.0, "Seconds for a request body to arrive, and again for its response.", above=0
    )
    head_timeout: float = setting(
        10.0, "Seconds for the first line and headers of a request to arrive.", above=0
    )
    idle_timeout: float = setting(
        15.0, "Seconds that a connection may stay idle, or leave a response unread.", min=1
    )
    max_connections: int = setting(1_000, "Maximum connections; more get a 503 response.", min=1)
    max_connections_per_address: int = setting(
        250, "Maximum connections from one address; raise it behind a proxy.", min=1
    )
    max_requests: int = setting(
        256, "Maximum requests in progress, waiting ones included; more get a 503 response.", min=1
    )
    grace: float = setting(30.0, "Seconds from SIGTERM to the end of the process.", min=1)
    watch: float | None = setting(
        None, "Seconds between checks for a new model in RUN; never if left out.", above=0
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Sharing:
    """That a server is one of several, and how it tells the others of a new model."""

    number: int
    workers: int
    folder: str  # that all workers have, for their counts and sockets
    reload_all: Callable[[], None]


def read_token(file: Path | None) -> str | None:
    """From the file, else from the environment."""
    if file is None:
        content, source = os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE
        if content is None:
            return None
    else:
        source = str(file)
        try:
            content = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise InputError(f"cannot read the token in {file}: {reason}") from None
    token = content.strip()
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable():
        raise InputError(
            f"the token in {source} must have at least {MIN_TOKEN} printable ASCII "
            "characters; make one with: openssl rand -hex 32"
        )
    return token


def check_exposure(host: str, token: str | None, no_token: bool) -> None:
    """Refuse to be reachable from other machines without a token, unless that is wanted."""
    if token is None and not no_token and not is_loopback(host):
        raise InputError(
            f"{host} can be reached from other machines and no token is set; give "
            f"{argument('token_file')}, set {TOKEN_VARIABLE}, or give {argument('no_token', True)} "
            "if a proxy checks the requests"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
