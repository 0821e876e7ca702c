"""Tensors as safetensors bytes: no pickle is read or written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from linrec.files.guard import first_line
from linrec.types import InputError

TRAIN_AGAIN = "train the run again"

MAX_HEADER = 4 << 20
"""Bytes of the list of tensors; a tensor takes about a hundred, and a long list takes minutes."""


def pack_tensors(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    return safetensors.torch.save(plain, metadata)


def read_tensors(path: Path, content: bytes) -> dict[str, Tensor]:
    """The tensors in the content of a file; `path` names it in error messages."""
    if MAX_HEADER < int.from_bytes(content[:8], "little") < len(content):
        raise InputError(f"{path} lists more tensors than any model has; {TRAIN_AGAIN}")
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, KeyError, ValueError, RuntimeError, AttributeError) as error:
        raise InputError(
            f"{path} is truncated or corrupt ({first_line(error)}); {TRAIN_AGAIN}"
        ) from None


def read_metadata(content: bytes) -> dict[str, str]:
    """What `pack_tensors` was given besides tensors, from a content that `read_tensors` accepts."""
    length = int.from_bytes(content[:8], "little")
    metadata: dict[str, str] = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    return metadata


def last_line(error: BaseException) -> str:
    """The last line of torch's message about weights that do not fit names the mismatch."""
    return str(error).strip().splitlines()[-1].strip().rstrip(".")
