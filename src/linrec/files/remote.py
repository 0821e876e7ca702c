"""Addresses of object storage, s3://bucket/key and gs://bucket/key, through pyarrow.

Whatever may be on a file system or in object storage is told apart here, by `place`. An address is
a `Path` that keeps its name; only the functions of this module look at what is behind it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from glob import has_magic
from pathlib import Path, PosixPath
from typing import Any, NamedTuple

from linrec.types import InputError

SCHEMES = ("s3", "gs")
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
CONNECT_SECONDS = 10.0
CHUNK = 8 << 20
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.DOTALL)  # a Path has one slash
_REFUSED = (
    "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "EXPIRED_TOKEN",
    "INVALID_CLIENT_TOKEN_ID", "MISSING_AUTHENTICATION_TOKEN", "INVALID_SIGNATURE",
    "PERMISSION_DENIED", "UNAUTHENTICATED", "HTTP status 401", "HTTP status 403",
)  # fmt: skip
_UNREACHABLE = ("NETWORK_CONNECTION", "curlCode", "UNAVAILABLE", "onnect to server", "resolve host")
_NO_BUCKET = ("NO_SUCH_BUCKET", "Bucket '", "bucket does not exist")
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role of the machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or a service account of the machine",
}


class Address(PosixPath):
    """An object, or all objects whose keys begin so, under a name that is written with `://`."""

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def resolve(self, strict: bool = False) -> Address:  # noqa: ARG002 - as a Path has it
        return self

    def absolute(self) -> Address:
        return self

    @property
    def scheme(self) -> str:
        return self.parts[0].removesuffix(":")

    @property
    def bucket(self) -> str:
        return self.parts[1]

    @property
    def location(self) -> str:
        """As pyarrow names it: the bucket and the key."""
        return "/".join(self.parts[1:])


class Entry(NamedTuple):
    """What storage says of an object, or of a folder of objects."""

    path: Address
    is_folder: bool
    size: int = 0
    changed: int = 0  # nanoseconds


def place(path: str | Path) -> Path:
    """An `Address`, or a path on a file system."""
    if isinstance(path, Address):
        return path
    scheme, rest = _parsed(path)
    if scheme is None:
        return Path(path)
    if scheme not in SCHEMES or sys.platform == "win32":
        known = " and ".join(f"{name}://" for name in SCHEMES)
        raise InputError(
            f"{path} is not on a file system, and of other addresses linrec reads {known}; copy it "
            "to one of these or to a file system"
        )
    if not rest.strip("/"):
        raise InputError(f"{path} names no bucket; give {scheme}://BUCKET/KEY")
    return Address(f"{scheme}:/", rest)


def check_local(path: str | Path) -> None:
    """Refuse an address where only files are read and written."""
    scheme, _ = _parsed(path)
    if scheme is not None:
        raise InputError(
            f"{Address(path)} is not on a file system; only events, items and datasets may be in "
            "object storage, so choose a path on a file system"
        )


def _parsed(path: str | Path) -> tuple[str | None, str]:
    found = _ADDRESS.match(str(path))
    return (None, str(path)) if found is None else (found[1], found[2])


def is_folder(path: str | Path) -> bool:
    """Of a file system, or of storage."""
    where = place(path)
    if not isinstance(where, Address):
        return where.is_dir()
    there = entry(where)
    return there is not None and there.is_folder


def is_file(path: str | Path) -> bool:
    where = place(path)
    if not isinstance(where, Address):
        return where.is_file()
    there = entry(where)
    return there is not None and not there.is_folder


def entry(address: Address) -> Entry | None:
    """None if nothing is there; a bucket that does not exist is refused."""
    from pyarrow.fs import FileType

    with _explained(address):
        system = _system(address)
        info = system.get_file_info(address.location)
        if info.type != FileType.NotFound:
            return _entry(address, info)
        if system.get_file_info(address.bucket).type == FileType.NotFound:
            raise _no_bucket(address)
    return None


def children(address: Address, *, recursive: bool = False) -> list[Entry]:
    """What is in a folder, in the order of names."""
    from pyarrow.fs import FileSelector

    with _explained(address):
        selector = FileSelector(address.location, recursive=recursive, allow_not_found=True)
        found = _system(address).get_file_info(selector)
    named = [_entry(Address(f"{address.scheme}:/", info.path), info) for info in found]
    return sorted(named, key=lambda each: each.path.parts)


def _entry(path: Address, info: Any) -> Entry:
    from pyarrow.fs import FileType

    return Entry(path, info.type == FileType.Directory, info.size or 0, info.mtime_ns or 0)


def matching(pattern: Address) -> list[Entry]:
    """The objects that a pattern fits, as `glob` reads it, in the order of names."""
    root = Address(*pattern.parts[:2])
    found = {each.path: each for each in _matching(root, pattern.parts[2:])}
    if not found:
        entry(root)  # a bucket that does not exist is not an empty one
    return [found[path] for path in sorted(found)]


def _matching(folder: Address, parts: Sequence[str]) -> Iterator[Entry]:
    (part, *rest), last = parts, len(parts) == 1
    if not has_magic(part):
        if not last:
            yield from _matching(folder / part, rest)
        elif (there := entry(folder / part)) is not None and not there.is_folder:
            yield there
        return
    if part == "**" and not last:
        yield from _matching(folder, rest)
    for each in children(folder):
        name = each.path.name
        if name.startswith(".") and not part.startswith("."):
            continue
        if part == "**":
            if each.is_folder:
                yield from _matching(each.path, parts)
            elif last:
                yield each
        elif fnmatchcase(name, part):
            if not last and each.is_folder:
                yield from _matching(each.path, rest)
            elif last and not each.is_folder:
                yield each


def read_head(address: Address, size: int) -> bytes:
    """The first bytes of an object."""
    with _explained(address), _system(address).open_input_stream(address.location) as stream:
        content: bytes = stream.read(size)
        return content


def chunks(address: Address) -> Iterator[bytes]:
    """The content of an object, bit by bit."""
    with _explained(address):
        stream = _system(address).open_input_stream(address.location)
    with stream:
        while True:
            with _explained(address):
                chunk = stream.read(CHUNK)
            if not chunk:
                return
            yield chunk


def send(file: Path, address: Address) -> None:
    with file.open("rb") as source, _writing(address) as stream:
        while chunk := source.read(CHUNK):
            stream.write(chunk)


def send_bytes(content: bytes, address: Address) -> None:
    with _writing(address) as stream:
        stream.write(content)


@contextmanager
def _writing(address: Address) -> Iterator[Any]:
    """A stream; the object is there when it is closed."""
    with (
        _explained(address, "write"),
        _system(address).open_output_stream(address.location) as stream,
    ):
        yield stream


def delete(address: Address) -> None:
    with _explained(address, "write"):
        _system(address).delete_file(address.location)


def _system(address: Address) -> Any:
    endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), None)
    return _connected(address.scheme, address.bucket, endpoint)


@lru_cache(maxsize=32)
def _connected(scheme: str, bucket: str, endpoint: str | None) -> Any:
    """pyarrow's file system, with the credentials that it finds."""
    from pyarrow import fs

    if scheme == "gs":
        return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=3 * CONNECT_SECONDS))
    if endpoint is not None:  # pyarrow itself does not read it from the environment
        return fs.S3FileSystem(endpoint_override=endpoint, connect_timeout=CONNECT_SECONDS)
    region = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(region=region, connect_timeout=CONNECT_SECONDS)


@contextmanager
def _explained(address: Address, what: str = "read") -> Iterator[None]:
    """Turn an error of storage into one sentence."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{address} does not exist; check the address") from error
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's are among them
        raise InputError(_sentence(address, what, str(error))) from error


def _sentence(address: Address, what: str, reason: str) -> str:
    if any(word in reason for word in _NO_BUCKET):
        return str(_no_bucket(address))
    if any(word in reason for word in _REFUSED):
        return (
            f"the storage does not let you {what} {address}; give credentials that may: "
            f"{_CREDENTIALS[address.scheme]}"
        )
    if any(word in reason for word in _UNREACHABLE):
        endpoint = next((name for name in ENDPOINTS if os.environ.get(name)), None)
        named = f"{endpoint}={os.environ[endpoint]}" if endpoint else "the address of the service"
        return f"no storage answers for {address}; check the network and {named}"
    gist = " ".join(reason.split())[:160]
    return f"cannot {what} {address} ({gist}); check the address and the credentials"


def _no_bucket(address: Address) -> InputError:
    return InputError(
        f"there is no bucket {address.bucket!r}, which {address} names; correct it, or make it"
    )
