"""What the server is told beside the engine, and what it refuses to start with."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from linrec.types import InputError

TOKEN_VARIABLE = "LINREC_TOKEN"
SHORTEST_TOKEN = 16


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    host: str = "127.0.0.1"
    token: str | None = None
    most_body: int = 1_048_576  # bytes
    timeout: float = 30.0  # seconds, of one request
    grace: float = 30.0  # seconds to finish what was taken at shutdown
    connections: int = 1_000  # beyond them the answer is 503
    watch: float | None = None  # seconds between looks at the run folder


def read_token(file: Path | None) -> str | None:
    """From the file, else from the environment."""
    if file is None:
        found, source = os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE
        if found is None:
            return None
    else:
        source = str(file)
        try:
            found = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise InputError(f"cannot read the token in {file}: {reason}") from None
    token = found.strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise InputError(
            f"the token in {source} must have at least {SHORTEST_TOKEN} printable ASCII "
            "characters; make one with: openssl rand -hex 32"
        )
    return token


def check_exposure(host: str, token: str | None, no_token: bool) -> None:
    """Without a token, beyond this machine only if somebody said so."""
    if token is None and not no_token and not is_loopback(host):
        raise InputError(
            f"{host} can be reached from other machines and no token is set; give --token-file, "
            f"set {TOKEN_VARIABLE}, or say --no-token if something before it checks who asks"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
