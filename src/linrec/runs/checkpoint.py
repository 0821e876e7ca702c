"""Where a training stands: weights, their average, optimizers and counters in one file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from linrec.runs.tensors import last_line, pack_tensors, read_tensors
from linrec.types import InputError, argument


@dataclass
class Progress:
    """Everything but tensors that the next step depends on."""

    epoch: int = 0  # finished epochs
    step: int = 0  # finished steps of the current epoch
    loss_sum: float = 0.0  # over the targets of the current epoch
    targets: int = 0
    seconds: float = 0.0  # spent on the current epoch
    best: float = -1.0
    best_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


def pack_checkpoint(
    progress: Progress,
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    average: nn.Module | None = None,
) -> bytes:
    """average: a moving average of the weights, if the training keeps one."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    if average is not None:
        tensors |= {f"average.{name}": value for name, value in average.state_dict().items()}
    for part, optimizer in zip(_parts(optimizers), optimizers, strict=True):
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {
                f"{part}.{index}.{name}": torch.as_tensor(value) for name, value in state.items()
            }
    return pack_tensors(tensors, {"progress": json.dumps(asdict(progress))})


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    average: nn.Module | None = None,
) -> Progress:
    """Restore what `pack_checkpoint` got; without a file the training starts from the beginning."""
    if not path.exists():
        return Progress()
    tensors = read_tensors(path)
    try:
        model.load_state_dict(_part(tensors, "model."))
        if average is not None:
            average.load_state_dict(_part(tensors, "average."))
        for part, optimizer in zip(_parts(optimizers), optimizers, strict=True):
            groups = optimizer.state_dict()["param_groups"]
            state = _state(tensors, f"{part}.")
            optimizer.load_state_dict({"state": state, "param_groups": groups})
        return read_progress(path)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} does not fit this run ({last_line(error)}); train without "
            f"{argument('resume', True)}"
        ) from None


def read_progress(path: Path) -> Progress:
    """The counters of a checkpoint, without its tensors."""
    if not path.exists():
        return Progress()
    with safetensors.safe_open(path, "pt") as file:
        return Progress(**json.loads((file.metadata() or {})["progress"]))


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _parts(optimizers: Sequence[Optimizer]) -> list[str]:
    """The name of each optimizer in the file: optimizer, optimizer1, ..."""
    return [f"optimizer{index or ''}" for index in range(len(optimizers))]


def _state(tensors: dict[str, Tensor], prefix: str) -> dict[int, dict[str, Any]]:
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith(prefix):
            index, key = name.removeprefix(prefix).split(".", 1)
            # SparseAdam counts its steps in an int, Adam in a float tensor
            count = value.dim() == 0 and not value.is_floating_point()
            state.setdefault(int(index), {})[key] = value.item() if count else value
    return state
