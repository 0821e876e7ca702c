"""Where events come from: a file or a pipe of JSON lines, or a Redis stream.

A batch is confirmed once its events are stored. Whatever was not confirmed comes again, and the
ids of its events make that harmless.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from socket import gethostname
from typing import Any, BinaryIO, Protocol
from urllib.parse import parse_qs, urlparse

from linrec.serving.stores import Store, StoreError
from linrec.types import InputError

FINGERPRINT_BYTES = 4_096  # at the beginning of a file, to know it again
POSITIONS = "ingest"  # the kind of shared record that holds how far a file was read
BLOCK_MS = 500  # to wait for entries of a stream
ABANDONED_MS = 60_000  # after which entries that another reader took are taken over


@dataclass(frozen=True, slots=True)
class Batch:
    lines: list[bytes]  # JSON objects
    names: list[str] | None  # of each line, unique in its source: ids for events without one
    position: Any  # what confirms it
    done: int  # bytes or entries read so far
    total: int | None


class Source(Protocol):
    def batches(self, size: int) -> Iterator[Batch]: ...

    def confirm(self, batch: Batch) -> None:
        """Its events are stored."""


class PipeSource:
    """Lines of the standard input: once through, with nothing to resume."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream or sys.stdin.buffer

    def batches(self, size: int) -> Iterator[Batch]:
        done = 0
        while lines := _some_lines(self._stream, size):
            done += sum(map(len, lines))
            yield Batch(lines, None, None, done, None)

    def confirm(self, batch: Batch) -> None:
        del batch


class FileSource:
    """A file that may grow; how far it was read is kept in the store."""

    def __init__(self, path: Path, store: Store, *, restart: bool = False) -> None:
        if not path.is_file():
            raise InputError(f"{path} is not a file; give a file of JSON lines")
        self._path, self._store = path, store
        self._name = str(path.resolve())
        self._prefix = blake2b(self._name.encode(), digest_size=6).hexdigest()
        self.start = 0 if restart else self._resumed()

    def _resumed(self) -> int:
        stored = self._store.shared(POSITIONS).get(self._name)
        if stored is None:
            return 0
        known = json.loads(stored)
        if self._beginning(known["bytes"]) != known["beginning"]:
            raise InputError(
                f"{self._path} is not the file that was read before: its beginning differs; read "
                "it from the start, or give it another name"
            )
        return int(known["offset"])

    def _beginning(self, count: int) -> str:
        with self._path.open("rb") as file:
            return blake2b(file.read(count), digest_size=16).hexdigest()

    def batches(self, size: int) -> Iterator[Batch]:
        offset, total = self.start, self._path.stat().st_size
        with self._path.open("rb") as file:
            file.seek(offset)
            while lines := _some_lines(file, size):
                if not lines[-1].endswith(b"\n") and not _is_json(lines[-1]):
                    lines.pop()  # somebody is still writing it
                    if not lines:
                        return
                names = []
                for line in lines:
                    names.append(f"{self._prefix}:{offset}")
                    offset += len(line)
                yield Batch(lines, names, offset, offset, total)

    def confirm(self, batch: Batch) -> None:
        count = min(batch.position, FINGERPRINT_BYTES)
        record = {"offset": batch.position, "bytes": count, "beginning": self._beginning(count)}
        self._store.change_shared(POSITIONS, {self._name: json.dumps(record)})


class StreamSource:
    """Entries of a Redis stream, for one reader of a consumer group.

    An entry has a field `json`, or the fields user, item and, where known, time, id and context
    (JSON). What a reader took and did not confirm comes first when it starts again; another reader
    takes it over after a minute.
    """

    def __init__(self, address: str, *, until_empty: bool = False) -> None:
        try:
            import redis
        except ImportError:
            raise InputError(
                "a Redis stream needs the redis package; install it with: pip install linrec[serve]"
            ) from None
        parts = urlparse(address)
        self._stream = parts.path.strip("/")
        if not self._stream or not parts.hostname:
            raise InputError(f"{address} names no stream; write redis-stream://host:6379/stream")
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self._group = options.get("group", "linrec")
        self._consumer = options.get("consumer", gethostname())
        self._until_empty, self._errors = until_empty, redis.exceptions
        self._redis: Any = redis.Redis(
            host=parts.hostname, port=parts.port or 6379, db=int(options.get("db", "0")),
            username=parts.username, password=parts.password,
        )  # fmt: skip
        self._join()

    def _join(self) -> None:
        try:
            self._redis.xgroup_create(self._stream, self._group, "0", mkstream=True)
        except self._errors.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise InputError(f"the stream cannot be read: {error}") from None
        except self._errors.RedisError:
            raise InputError("the Redis of the stream does not answer; start it") from None

    def batches(self, size: int) -> Iterator[Batch]:
        """Entries that were left over, then new ones; ends only if there are none and it should."""
        try:
            self._redis.xautoclaim(
                self._stream, self._group, self._consumer, ABANDONED_MS, count=size
            )
            done, after = 0, "0"
            while True:
                wanted = {self._stream: after}
                found = self._redis.xreadgroup(
                    self._group, self._consumer, wanted, count=size, block=BLOCK_MS
                )
                entries = found[0][1] if found else []
                if entries:
                    done += len(entries)
                    yield self._batch(entries, done)
                elif after != ">":
                    after = ">"  # nothing is left over
                elif self._until_empty:
                    return
        except self._errors.RedisError as error:
            raise StoreError(f"the Redis of the stream does not answer ({error})") from None

    def _batch(self, entries: list[Any], done: int) -> Batch:
        names = [f"{self._stream}:{entry.decode()}" for entry, _ in entries]
        lines = [_line_of(fields or {}) for _, fields in entries]
        return Batch(lines, names, [entry for entry, _ in entries], done, None)

    def confirm(self, batch: Batch) -> None:
        self._redis.xack(self._stream, self._group, *batch.position)


def _line_of(fields: dict[bytes, bytes]) -> bytes:
    if b"json" in fields:
        return fields[b"json"]
    known: dict[str, Any] = {
        name.decode(errors="replace"): value.decode(errors="replace")
        for name, value in fields.items()
    }
    with suppress(KeyError, ValueError):  # one that is not a number is refused with the others
        known["time"] = float(known["time"])
    with suppress(KeyError, ValueError):
        known["context"] = json.loads(known["context"])
    return json.dumps(known).encode()


def _some_lines(stream: BinaryIO, size: int) -> list[bytes]:
    lines = []
    for line in stream:
        lines.append(line)
        if len(lines) == size:
            break
    return lines


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def open_source(
    place: str, store: Store, *, restart: bool = False, until_empty: bool = False
) -> Source:
    """ "-" for the standard input, redis-stream://host:port/stream, or the path of a file."""
    if place == "-":
        return PipeSource()
    if place.startswith("redis-stream://"):
        return StreamSource(place, until_empty=until_empty)
    return FileSource(Path(place), store, restart=restart)
