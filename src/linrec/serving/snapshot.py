"""What a model remembers of a user, as bytes: state, last encoding, and which items were seen.

fingerprint (16) | digest of the rest (8) | version (16) and events (8) of the head it belongs to |
encoding and state, as many bytes as the model needs | items seen. The fingerprint identifies the
model that wrote it, the digest shows damage, and version and events show whether it is the state
of what is stored now.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrec.backbones.backbone import ClosedState
from linrec.backbones.state import state_of, tensors_of

FINGERPRINT, DIGEST = 16, 8
_ORIGIN = struct.Struct("<16sQ")
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Snapshot:
    state: bytes  # encoding and state
    seen: Indices  # item indices, each once, in order; empty: the model knows nothing of the user


@dataclass(frozen=True, slots=True)
class Origin:
    """The stored history that a snapshot was made from."""

    version: str  # of the user's head
    events: int  # kept of the user

    def pack(self) -> bytes:
        return _ORIGIN.pack(self.version.encode(), self.events)


def pack(snapshot: Snapshot, origin: Origin, fingerprint: bytes, n_items: int) -> bytes:
    rest = origin.pack() + snapshot.state + _pack_seen(snapshot.seen, n_items)
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
    return Snapshot(rest[:state_bytes], _unpack_seen(rest[state_bytes:]))


def _digest(fingerprint: bytes, rest: bytes) -> bytes:
    return blake2b(rest, digest_size=DIGEST, key=fingerprint).digest()


def _pack_seen(seen: Indices, n_items: int) -> bytes:
    """A list while it is short, else one bit per item: never more than the catalogue costs."""
    if 4 * len(seen) <= n_items // 8:
        return b"L" + seen.astype("<u4").tobytes()
    bits = np.zeros(n_items + 1, np.bool_)
    bits[seen] = True
    return b"B" + np.packbits(bits).tobytes()


def _unpack_seen(content: bytes) -> Indices:
    if content[:1] == b"L":
        return np.frombuffer(content, "<u4", offset=1).astype(np.int64)
    return np.flatnonzero(np.unpackbits(np.frombuffer(content, np.uint8, offset=1)))


class StateCodec:
    """Rows of bytes from and to a batch of encodings and states of one model."""

    def __init__(self, start: ClosedState, width: int) -> None:
        """start: the model's state of one user without a past."""
        self._template = start
        self._names = list(tensors_of(start))
        leaves = [torch.zeros(1, width), *tensors_of(start).values()]
        self._shapes = [(leaf.dtype, leaf.shape[1:]) for leaf in leaves]
        self._sizes = [leaf.element_size() * leaf[0].numel() for leaf in leaves]
        self.bytes = sum(self._sizes)

    def write(self, hidden: Tensor, state: ClosedState) -> list[bytes]:
        """hidden: [B, width]."""
        leaves = [hidden.float(), *tensors_of(state).values()]
        rows = torch.cat([_bytes_of(leaf) for leaf in leaves], 1).numpy()
        return [row.tobytes() for row in rows]

    def read(self, rows: list[bytes]) -> tuple[Tensor, ClosedState]:
        flat = torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8).view(len(rows), -1)
        parts = flat.split_with_sizes(self._sizes, 1)
        leaves = [
            # a copy, because a number must begin at a multiple of its own size
            _copy(part).view(dtype).view(-1, *shape)
            for part, (dtype, shape) in zip(parts, self._shapes, strict=True)
        ]
        state = state_of(self._template, dict(zip(self._names, leaves[1:], strict=True)))
        assert isinstance(state, tuple)
        return leaves[0], state

    def hidden(self, row: bytes) -> Tensor:
        """The encoding alone: [width]."""
        return torch.frombuffer(bytearray(row[: self._sizes[0]]), dtype=torch.float32)


def _bytes_of(leaf: Tensor) -> Tensor:
    """[B, ...] -> [B, bytes]."""
    return _copy(leaf.reshape(len(leaf), -1)).view(torch.uint8)


def _copy(x: Tensor) -> Tensor:
    """With plain strides, also along dimensions of length one."""
    return x.clone(memory_format=torch.contiguous_format)
