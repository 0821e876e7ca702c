"""Files from the network, resumed from a part file."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from http.client import HTTPException, InvalidURL
from pathlib import Path
from typing import Any, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import Request, build_opener

from linrec.files.atomic import writing
from linrec.types import InputError, argument

Progress = Callable[[int, int | None], None]
"""A callback with the bytes received and the total, None where it is unknown."""

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18
_GONE = (404, 410)
_PAST_THE_END = 416


def fetch(address: str, part: Path, progress: Progress) -> None:
    """Download `address` into `part`, resuming after the bytes it already holds."""
    with writing(part), part.open("r+b") as file, _reaching(address):
        response, start = _open_from(address, file.seek(0, os.SEEK_END))
        if response is None:
            return
        with response:
            _receive(response, file, start, part, progress)


def _receive(response: Any, file: BinaryIO, start: int, part: Path, progress: Progress) -> None:
    length = response.headers.get("Content-Length")
    total = None if length is None else start + int(length)
    with writing(part):
        file.truncate(start)
        file.seek(start)
    done = start
    progress(done, total)
    while chunk := response.read1(_CHUNK):  # what has arrived, without waiting for more
        with writing(part):
            file.write(chunk)
            file.flush()
        done += len(chunk)
        progress(done, total)
    if total is not None and done < total:  # read1 does not raise for it
        raise ConnectionError(f"after {done:,} of {total:,} bytes")


def published_md5(address: str) -> str | None:
    """The checksum in the `.md5` file beside an archive; None where there is none."""
    beside = f"{address}.md5"
    with _reaching(beside):
        try:
            with _open(beside) as response:
                content = response.read(4096).decode("ascii", errors="replace")
        except HTTPError as error:
            if error.code not in (*_GONE, 403):  # object stores answer 403 for a missing file
                raise
            return None
        except URLError as error:
            if not isinstance(error.reason, FileNotFoundError):
                raise
            return None
    match = re.search(r"\b[0-9a-fA-F]{32}\b", content)
    return match[0].lower() if match else None


def _open_from(address: str, have: int) -> tuple[Any, int]:
    """A response and the byte it begins at; no response if the part is complete.

    A server that cannot resume sends the file from the start. The checksum tells whether the new
    bytes match the old ones.
    """
    if not have:
        return _open(address), 0
    try:
        response = _open(address, {"Range": f"bytes={have}-"})
    except HTTPError as error:
        if error.code != _PAST_THE_END:
            raise
        complete = error.headers.get("Content-Range") == f"bytes */{have}"
        return (None, have) if complete else (_open(address), 0)
    if getattr(response, "status", None) != 206:
        return response, 0
    if response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        return response, have
    response.close()
    return _open(address), 0


def _open(address: str, headers: dict[str, str] | None = None) -> Any:
    # An opener of our own follows redirects as urlopen does, and obeys http_proxy, https_proxy and
    # no_proxy as they are now, not as they were at the process's first request.
    plain = {"User-Agent": "linrec", "Accept-Encoding": "identity"}
    request = Request(address, headers=plain | (headers or {}))
    return build_opener().open(request, timeout=TIMEOUT)


@contextlib.contextmanager
def _reaching(address: str) -> Iterator[None]:
    """Turn an error of the network into one sentence."""
    host = _host(address)
    try:
        yield
    except HTTPError as error:
        error.close()
        if error.code in _GONE:
            raise InputError(
                f"there is no file at {address} (HTTP {error.code}); check "
                f"{argument('from')}, or give a mirror with it if the source has moved"
            ) from error
        raise InputError(
            f"{address} returned HTTP {error.code} ({error.reason}); try again later"
        ) from error
    except TimeoutError as error:
        raise InputError(
            f"{host} sent nothing for {TIMEOUT:g} seconds; run it again to resume"
        ) from error
    except URLError as error:
        raise InputError(
            f"cannot reach {host} ({_gist(error.reason)}); check the network and the proxy "
            f"settings, or give a mirror or a folder with {argument('from')}"
        ) from error
    except InputError:
        raise
    except (InvalidURL, ValueError) as error:
        raise InputError(
            f"{address} is not a valid address ({_gist(error)}); check {argument('from')}"
        ) from error
    except (OSError, HTTPException) as error:
        raise InputError(
            f"the connection to {host} broke ({_gist(error)}); run it again to resume"
        ) from error


def _host(address: str) -> str:
    return address.partition("://")[2].partition("/")[0] or address


def _gist(reason: object) -> str:
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
