"""Where a training stands, in one file that is replaced in one step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from linrec.backbones.saving import last_line, read_tensors
from linrec.files.atomic import write_bytes
from linrec.types import InputError, argument

CHECKPOINT = "checkpoint.safetensors"


@dataclass
class Progress:
    """Everything but tensors that the next step depends on."""

    epoch: int = 0  # epochs finished
    step: int = 0  # steps finished of the epoch under way
    loss_sum: float = 0.0  # over the targets of the epoch under way
    targets: int = 0
    seconds: float = 0.0  # spent on the epoch under way
    best: float = -1.0
    best_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)


def save(
    folder: Path, progress: Progress, model: nn.Module, optimizers: Sequence[Optimizer]
) -> None:
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for part, optimizer in zip(_parts(optimizers), optimizers, strict=True):
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {
                f"{part}.{index}.{name}": torch.as_tensor(value) for name, value in state.items()
            }
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    content = safetensors.torch.save(tensors, {"progress": json.dumps(asdict(progress))})
    write_bytes(folder / CHECKPOINT, content)


def load(folder: Path, model: nn.Module, optimizers: Sequence[Optimizer]) -> Progress:
    """Put model and optimizers back where they were; a run without a checkpoint starts afresh."""
    path = folder / CHECKPOINT
    if not path.exists():
        return Progress()
    tensors = read_tensors(path)
    weights = {name[6:]: value for name, value in tensors.items() if name.startswith("model.")}
    try:
        model.load_state_dict(weights)
        for part, optimizer in zip(_parts(optimizers), optimizers, strict=True):
            groups = optimizer.state_dict()["param_groups"]
            state = _state(tensors, f"{part}.")
            optimizer.load_state_dict({"state": state, "param_groups": groups})
        return _progress(path)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} does not fit this run ({last_line(error)}); train without {argument('resume')}"
        ) from None


def read_progress(folder: Path) -> Progress:
    """Where the training in a run folder stands, without its tensors."""
    path = folder / CHECKPOINT
    return _progress(path) if path.exists() else Progress()


def _progress(path: Path) -> Progress:
    with safetensors.safe_open(path, "pt") as file:
        return Progress(**json.loads((file.metadata() or {})["progress"]))


def _parts(optimizers: Sequence[Optimizer]) -> list[str]:
    """What each is called in the file; the first as when there was only one."""
    return [f"optimizer{index or ''}" for index in range(len(optimizers))]


def _state(tensors: dict[str, Tensor], prefix: str) -> dict[int, dict[str, Any]]:
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith(prefix):
            index, key = name.removeprefix(prefix).split(".", 1)
            # SparseAdam counts its steps in an int, Adam in a tensor of floats
            count = value.dim() == 0 and not value.is_floating_point()
            state.setdefault(int(index), {})[key] = value.item() if count else value
    return state
