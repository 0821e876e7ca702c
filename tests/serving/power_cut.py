"""What a disk holds after the power was cut: synced writes, and of the others anything.

The journal is what tests/serving/unsynced.c recorded of a process.
"""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SOURCE = Path(__file__).with_name("unsynced.c")
SECTOR = 512  # bytes that are written all or not at all
_HEAD = struct.Struct("<cqIQ")

Way = Literal["dropped", "first", "some"]  # which of the writes that were not synced


def why_no_shim() -> str | None:
    if shutil.which("cc") is None:
        return "no C compiler (cc) on PATH, which builds the recorder of writes"
    return None


def build_shim(folder: Path) -> Path:
    built = folder / "unsynced.so"
    subprocess.run(
        ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", built, SOURCE],
        check=True,
    )
    return built


@dataclass(frozen=True, slots=True)
class Call:
    kind: str  # C create, W write, T truncate, S sync, U unlink
    path: str
    offset: int  # of a write; the new size of a truncated file
    data: bytes = b""


def calls(journal: Path) -> Iterator[Call]:
    content, at = memoryview(journal.read_bytes()), 0
    while at < len(content):
        kind, offset, name, size = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        path, data = bytes(content[at : at + name]), b""
        at += name
        if kind == b"W":
            data = bytes(content[at : at + size])
            at += size
        yield Call(kind.decode(), path.decode(), offset, data)


@dataclass(eq=False)
class File:
    synced: bytearray = field(default_factory=bytearray)
    waiting: list[Call] = field(default_factory=list)

    def after_cut(self, way: Way, rng: random.Random) -> bytes:
        content = bytearray(self.synced)
        kept = rng.randint(0, len(self.waiting)) if way == "first" else len(self.waiting)
        for call in [] if way == "dropped" else self.waiting[:kept]:
            for part in _torn(call, rng) if way == "some" else [call]:
                _carry_out(content, part)
        return bytes(content)


class Disk:
    """Carries out calls; a name counts as synced with its folder, content with its file."""

    def __init__(self) -> None:
        self._names: dict[str, File] = {}
        self._synced_names: dict[str, File] = {}

    def call(self, call: Call) -> None:
        if call.kind == "C":
            self._names[call.path] = File()
        elif call.kind == "U":
            del self._names[call.path]
        elif call.kind == "S" and call.path not in self._names:  # a folder
            self._synced_names = dict(self._names)
        else:
            file = self._names[call.path]
            file.waiting.append(call)
            if call.kind == "S":
                for each in file.waiting:
                    _carry_out(file.synced, each)
                file.waiting.clear()

    def after_cut(self, way: Way, rng: random.Random) -> dict[str, bytes]:
        """Files by path; the disk itself goes on."""
        names = dict(self._synced_names)
        if way != "dropped" and rng.random() < 0.5:
            names = dict(self._names)
        return {path: file.after_cut(way, rng) for path, file in names.items()}

    def paths(self) -> list[str]:
        return list(self._names)

    def now(self, path: str) -> bytes:
        """What a process reads, synced or not."""
        file = self._names.get(path, File())
        content = bytearray(file.synced)
        for each in file.waiting:
            _carry_out(content, each)
        return bytes(content)


def _carry_out(content: bytearray, call: Call) -> None:
    if call.kind == "T":
        del content[call.offset :]
        content.extend(bytes(call.offset - len(content)))
    elif call.kind == "W":
        content.extend(bytes(max(call.offset - len(content), 0)))
        content[call.offset : call.offset + len(call.data)] = call.data


def _torn(call: Call, rng: random.Random) -> Iterator[Call]:
    """Some sectors of a write; a truncation happens or not."""
    if call.kind != "W":
        if rng.random() < 0.5:
            yield call
        return
    at = 0
    while at < len(call.data):
        size = min(SECTOR - (call.offset + at) % SECTOR, len(call.data) - at)
        if rng.random() < 0.5:
            yield Call("W", call.path, call.offset + at, call.data[at : at + size])
        at += size
