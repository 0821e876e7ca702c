"""Tensors as safetensors bytes: no pickle is read or written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from linrec.files.guard import first_line, reading
from linrec.types import InputError

TRAIN_AGAIN = "train the run again"


def pack_tensors(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    return safetensors.torch.save(plain, metadata)


def read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise InputError(f"{path} is missing: the training has not saved a model yet")
    with reading(str(path), TRAIN_AGAIN):
        content = path.read_bytes()
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{path} is truncated or corrupt ({first_line(error)}); {TRAIN_AGAIN}"
        ) from None


def last_line(error: BaseException) -> str:
    """The last line of torch's message about weights that do not fit names the mismatch."""
    return str(error).strip().splitlines()[-1].strip().rstrip(".")
