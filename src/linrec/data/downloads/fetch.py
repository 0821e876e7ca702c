"""Files from the network: what has arrived stays in a part file and is gone on with."""

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
from linrec.types import InputError

Told = Callable[[int, int | None], None]
"""Is told how many bytes are there, and of how many where that is known."""

SILENCE = 30.0  # seconds
_CHUNK = 1 << 18
_GONE = (404, 410)
_PAST_THE_END = 416


def fetch(address: str, part: Path, told: Told) -> None:
    """Bring `part` to the whole of what is at `address`, going on from what it holds."""
    with writing(part), part.open("r+b") as file, _reaching(address):
        response, start = _open_from(address, file.seek(0, os.SEEK_END))
        if response is None:
            return
        with response:
            _receive(response, file, start, part, told)


def _receive(response: Any, file: BinaryIO, start: int, part: Path, told: Told) -> None:
    length = response.headers.get("Content-Length")
    total = None if length is None else start + int(length)
    with writing(part):
        file.truncate(start)
        file.seek(start)
    done = start
    told(done, total)
    while chunk := response.read1(_CHUNK):  # what is there, without waiting for more
        with writing(part):
            file.write(chunk)
            file.flush()
        done += len(chunk)
        told(done, total)
    if total is not None and done < total:  # read1 does not mind
        raise ConnectionError(f"after {done:,} of {total:,} bytes")


def published_md5(address: str) -> str | None:
    """The checksum in the `.md5` file beside an archive; None where there is none."""
    beside = f"{address}.md5"
    with _reaching(beside):
        try:
            with _open(beside) as response:
                content = response.read(4096).decode("ascii", errors="replace")
        except HTTPError as error:
            if error.code not in (*_GONE, 403):  # object stores answer so what they do not have
                raise
            return None
        except URLError as error:
            if not isinstance(error.reason, FileNotFoundError):
                raise
            return None
    found = re.search(r"\b[0-9a-fA-F]{32}\b", content)
    return found[0].lower() if found else None


def _open_from(address: str, have: int) -> tuple[Any, int]:
    """A response and the byte it begins at; no response where all bytes are there.

    A server that cannot go on from the middle begins anew. Whether what it adds fits what was
    there is for the checksum to tell.
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
    return build_opener().open(request, timeout=SILENCE)


@contextlib.contextmanager
def _reaching(address: str) -> Iterator[None]:
    """Turn what can go wrong on the way into one sentence."""
    place = _place(address)
    try:
        yield
    except HTTPError as error:
        error.close()
        if error.code in _GONE:
            raise InputError(
                f"there is no file at {address} (HTTP {error.code}); check --from, or give a "
                "mirror with it if the source has moved"
            ) from error
        raise InputError(
            f"{address} answered HTTP {error.code} ({error.reason}); try again later"
        ) from error
    except TimeoutError as error:
        raise InputError(
            f"{place} was silent for {SILENCE:g} seconds; run it again to go on from there"
        ) from error
    except URLError as error:
        raise InputError(
            f"cannot reach {place} ({_gist(error.reason)}); check the network and the proxy "
            "settings, or give a mirror or a folder with --from"
        ) from error
    except InputError:
        raise
    except (InvalidURL, ValueError) as error:
        raise InputError(f"{address} is no address ({_gist(error)}); check --from") from error
    except (OSError, HTTPException) as error:
        raise InputError(
            f"the connection to {place} broke ({_gist(error)}); run it again to go on from there"
        ) from error


def _place(address: str) -> str:
    return address.partition("://")[2].partition("/")[0] or address


def _gist(reason: object) -> str:
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
