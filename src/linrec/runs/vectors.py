"""The item vectors that a model reads, in its run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from linrec.backbones.config import ModelConfig
from linrec.runs.config import AnyConfig
from linrec.runs.tensors import TRAIN_AGAIN, pack_tensors, read_tensors
from linrec.types import InputError

NAME = "vectors"


def reads_vectors(model: AnyConfig) -> bool:
    return isinstance(model, ModelConfig) and model.item_vectors == "on"


def pack_vectors(vectors: NDArray[np.float32]) -> bytes:
    return pack_tensors({NAME: torch.from_numpy(np.array(vectors))})


def unpack_vectors(path: Path, content: bytes, n_items: int) -> NDArray[np.float32]:
    """[n_items + 1, any width]; `path` names the file in error messages."""
    found = read_tensors(path, content).get(NAME)
    if found is None or found.dtype != torch.float32 or found.dim() != 2 or not found.numel():
        raise InputError(f"{path} holds no item vectors; the run is damaged, {TRAIN_AGAIN}")
    if len(found) != n_items + 1 or not bool(found.isfinite().all()):
        raise InputError(
            f"{path} is not one finite vector for each of {n_items} items; the run is damaged, "
            f"{TRAIN_AGAIN}"
        )
    return found.numpy()
