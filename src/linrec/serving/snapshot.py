"""What a model remembers of a user, as bytes: the state, and which items were seen how often.

fingerprint (16) | digest of the rest (8) | version (16) and events (8) of the head it belongs to |
state, as many bytes as the model needs (`states.States`) | items seen, with their counts if the
model has a repeat head. The fingerprint identifies the model that wrote it, the digest shows
damage, and version and events show whether it is the state of what is stored now. What was seen is
padded to a round size: a store overwrites a record of the same size in place, where one that is a
little longer with every event would have to be deleted and written again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from torch import Tensor

from linrec.backbones.state import State, state_of, tensors_of
from linrec.data.dataset.half_lives import half_lives
from linrec.data.dataset.past_counts import ItemCounts
from linrec.serving.past import Indices
from linrec.types import PAD

FINGERPRINT, DIGEST = 16, 8
_ORIGIN = struct.Struct("<16sQ")
_COUNTS = (b"C", b"T")  # counts that decay by events alone, and by time too
_COUNTS_HEAD = struct.Struct("<QdI")  # events, newest time, items
ROUND = 256  # bytes, of which the size of what was seen is a multiple


@dataclass(frozen=True, slots=True)
class Snapshot:
    state: bytes  # as `states.States` packs it
    seen: Indices  # item indices, each once, in order; empty: the model knows nothing of the user
    counts: ItemCounts | None = None  # of the same items, if the model has a repeat head


@dataclass(frozen=True, slots=True)
class Origin:
    """The stored history that a snapshot was made from."""

    version: str  # of the user's head
    events: int  # kept of the user

    def pack(self) -> bytes:
        return _ORIGIN.pack(self.version.encode(), self.events)


def pack(snapshot: Snapshot, origin: Origin, fingerprint: bytes, n_items: int) -> bytes:
    counts = snapshot.counts
    seen = _pack_seen(snapshot.seen, n_items) if counts is None else _pack_counts(counts)
    rest = origin.pack() + snapshot.state + seen
    return fingerprint + _digest(fingerprint, rest) + rest


def unpack(
    content: bytes | None, origin: Origin, fingerprint: bytes, state_bytes: int
) -> Snapshot | None:
    """None if there is none, it is damaged, or it is of another model or another history."""
    if content is None or content[:FINGERPRINT] != fingerprint:
        return None
    digest, rest = content[FINGERPRINT:][:DIGEST], content[FINGERPRINT + DIGEST :]
    if digest != _digest(fingerprint, rest) or rest[: _ORIGIN.size] != origin.pack():
        return None
    rest = rest[_ORIGIN.size :]
    state, seen = rest[:state_bytes], rest[state_bytes:]
    if seen[:1] in _COUNTS:
        counts = _unpack_counts(seen)
        return Snapshot(state, counts.items, counts)
    return Snapshot(state, _unpack_seen(seen))


def _digest(fingerprint: bytes, rest: bytes) -> bytes:
    # which processors have instructions for: a third of the time of BLAKE2
    digest = sha256(fingerprint, usedforsecurity=False)
    digest.update(rest)
    return digest.digest()[:DIGEST]


def _pack_seen(seen: Indices, n_items: int) -> bytes:
    """A list while it is short, else one bit per item: never more than the catalogue costs."""
    if 4 * len(seen) <= n_items // 8:
        return b"L" + _padded(seen.astype("<u4").tobytes())
    bits = np.zeros(n_items + 1, np.bool_)
    bits[seen] = True
    return b"B" + np.packbits(bits).tobytes()


def _unpack_seen(content: bytes) -> Indices:
    if content[:1] == b"L":
        items = np.frombuffer(content, "<u4", offset=1).astype(np.int64)
        seen: Indices = items[items != PAD]
        return seen
    return np.flatnonzero(np.unpackbits(np.frombuffer(content, np.uint8, offset=1)))


def _pack_counts(counts: ItemCounts) -> bytes:
    """Column by column; the first byte says whether there are times."""
    head = _COUNTS_HEAD.pack(counts.events, counts.newest, len(counts.items))
    columns = [counts.items.astype("<u4"), counts.places.astype("<u4"), counts.sums.astype("<f4")]
    if counts.times is not None:
        columns.append(counts.times.astype("<f8"))
    kind = _COUNTS[counts.times is not None]
    return kind + head + _padded(b"".join(column.tobytes() for column in columns))


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % ROUND)


def _unpack_counts(content: bytes) -> ItemCounts:
    timed = content[:1] == _COUNTS[True]
    events, newest, rows = _COUNTS_HEAD.unpack_from(content, 1)
    at = 1 + _COUNTS_HEAD.size
    parts = []
    for kind, width in (("<u4", 1), ("<u4", 1), ("<f4", half_lives(timed)), ("<f8", int(timed))):
        parts.append(np.frombuffer(content, kind, rows * width, at))
        at += parts[-1].nbytes
    items, places, sums, times = parts
    return ItemCounts(
        items.astype(np.int64),
        places.astype(np.int64),
        times.astype(np.float64) if timed else None,
        sums.astype(np.float32).reshape(rows, half_lives(timed)),
        events,
        newest,
    )


class StateCodec:
    """Rows of bytes from and to a batch of states of one model."""

    def __init__(self, start: State) -> None:
        """start: of one user without a past."""
        self._template = start
        self._names = list(tensors_of(start))
        leaves = tensors_of(start).values()
        self._shapes = [(leaf.dtype, leaf.shape[1:]) for leaf in leaves]
        self._sizes = [leaf.element_size() * leaf[0].numel() for leaf in leaves]
        self.bytes = sum(self._sizes)

    def write(self, state: State) -> list[bytes]:
        rows = torch.cat([_bytes_of(leaf) for leaf in tensors_of(state).values()], 1).numpy()
        return [row.tobytes() for row in rows]

    def read(self, rows: list[bytes]) -> State:
        parts = _stacked(rows).split_with_sizes(self._sizes, 1)
        leaves = map(_numbers, parts, self._shapes)
        return state_of(self._template, dict(zip(self._names, leaves, strict=True)))

    def first(self, rows: list[bytes]) -> Tensor:
        """The first tensor of the states alone."""
        size = self._sizes[0]
        return _numbers(_stacked([row[:size] for row in rows]), self._shapes[0])


def _stacked(rows: list[bytes]) -> Tensor:
    return torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8).view(len(rows), -1)


def _numbers(part: Tensor, form: tuple[torch.dtype, torch.Size]) -> Tensor:
    """[B, bytes] -> [B, ...]; a copy, because a number must begin at a multiple of its own size."""
    dtype, shape = form
    return _copy(part).view(dtype).view(-1, *shape)


def _bytes_of(leaf: Tensor) -> Tensor:
    """[B, ...] -> [B, bytes]."""
    return _copy(leaf.reshape(len(leaf), -1)).view(torch.uint8)


def _copy(x: Tensor) -> Tensor:
    """With plain strides, also along dimensions of length one."""
    return x.clone(memory_format=torch.contiguous_format)
