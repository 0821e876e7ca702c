"""One step of training: a batch in, better weights out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from linrec.backbones import Backbone
from linrec.data.dataset.sequences import IntArray
from linrec.losses import LOSSES, Candidates, Loss
from linrec.losses.loss import at_targets
from linrec.runs.config import RunConfig
from linrec.training.optimizer import optimizers_of
from linrec.types import InputError, SequenceBatch

PRECISIONS: dict[str, Literal["32-true", "bf16-mixed"]] = {
    "float32": "32-true",
    "bfloat16": "bf16-mixed",
}


class Step:
    """A model with its loss, its optimizers and the device it is trained on."""

    def __init__(self, model: Backbone, config: RunConfig, counts: IntArray) -> None:
        """counts: [n_items + 1], how often each item occurs in training."""
        training = config.training
        self.model, self.fabric = model, make_fabric(config)
        self.loss = loss_of(config, counts)
        self.module, *self.optimizers = self.fabric.setup(model, *optimizers_of(model, training))
        self.encode = compiled(self.module) if training.compile else self.module

    def __call__(self, batch: SequenceBatch, seed: int) -> float:
        """The loss before the step. All that is random in it follows from the seed."""
        torch.manual_seed(seed)
        items, keep, targets = (self.fabric.to_device(part) for part in batch)
        loss = self._loss(self.encode(items, keep), targets)
        value = loss.item()
        if np.isfinite(value):  # else the weights stay as they were
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            self.fabric.backward(loss)
            for optimizer in self.optimizers:
                optimizer.step()
        return value

    def _loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        hidden, targets = at_targets(hidden, targets)
        asked, bias = self.loss.candidates(targets), self.model.item_bias()
        if asked is None:
            candidates = Candidates(self.model.item_vectors(), bias)
        else:
            vectors = self.model.vectors_of(asked)
            candidates = Candidates(vectors, None if bias is None else bias[asked], asked)
        return self.loss(hidden, targets, candidates)


def loss_of(config: RunConfig, counts: IntArray) -> Loss:
    """The loss of a run with the settings that are its own."""
    training = config.training
    own = {name: getattr(training, name) for name in LOSSES[training.loss].own_settings}
    own.pop("sparse_items", None)  # how its gradient is used, not what it is
    return LOSSES[training.loss](counts, **own)


def make_fabric(config: RunConfig) -> Fabric:
    training = config.training
    try:
        return Fabric(
            accelerator=training.device, devices=1, precision=PRECISIONS[training.precision]
        )
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"device {training.device!r} cannot be used ({str(error).splitlines()[0]}); "
            "try --device cpu or --device auto"
        ) from None


def compiled(module: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same by torch.compile, which needs a compiler when it is first called."""
    from torch._dynamo.exc import TorchDynamoException

    # dynamic: rows and lengths of a batch change from step to step
    fast = torch.compile(module, dynamic=True)

    def encode(items: Tensor, keep: Tensor) -> Tensor:
        try:
            hidden: Tensor = fast(items, keep)
        except TorchDynamoException as error:
            reason = next((line for line in str(error).splitlines() if line.strip()), "no reason")
            raise InputError(
                f"torch.compile failed ({reason}); it needs a C++ compiler such as g++, or leave "
                "--compile out"
            ) from None
        return hidden

    return encode
