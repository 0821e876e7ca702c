"""One step of training: a batch in, better weights out."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from lightning_fabric import Fabric
from torch import Tensor

from linrec.backbones import Backbone
from linrec.data.dataset.sequences import IntArray
from linrec.losses import ItemVectors, build_loss
from linrec.losses.items import Scored
from linrec.losses.loss import at_targets
from linrec.losses.repeats import Repeats
from linrec.runs.config import RunConfig, TrainingConfig
from linrec.training.average import WeightAverage
from linrec.training.optimizer import optimizers_of
from linrec.training.transfer import Sent, Transfer
from linrec.types import InputError, SequenceBatch, argument

PRECISIONS: dict[str, Literal["32-true", "bf16-mixed"]] = {
    "float32": "32-true",
    "bfloat16": "bf16-mixed",
}


class Step:
    """A model with its loss, its optimizers and the device it is trained on."""

    def __init__(self, model: Backbone, config: RunConfig, counts: IntArray) -> None:
        """counts: [n_items + 1], how often each item occurs in training."""
        training = config.training
        self.model, self.fabric = model, make_fabric(training)
        self.transfer = Transfer(self.fabric)
        self.waits = self.fabric.device.type == "cpu"
        self.loss = build_loss(config.loss, counts)
        self.item_vectors = ModelItems(model)
        self.module, *self.optimizers = self.fabric.setup(model, *optimizers_of(model, training))
        self.encode = compiled(self.module) if training.compile else self.module
        self.average = WeightAverage(model, training.ema) if training.ema else None
        self.learning_rate, self.clip_norm = training.learning_rate, training.clip_norm
        self.narrow_loss = training.precision == "bfloat16" and self.loss.takes_bfloat16

    @property
    def evaluated(self) -> Backbone:
        """The model to validate and to keep: the average of the weights where there is one."""
        return self.model if self.average is None else self.average.averaged

    def __call__(self, batch: SequenceBatch | Sent, seed: int, share: float = 1.0) -> Tensor:
        """Returns the loss before the step. Everything random in it follows from the seed.

        On the CPU a loss that is not finite leaves the weights as they were. On a GPU nothing waits
        to see it: whoever keeps weights reads the losses first. share: of the learning rate, see
        `Schedule`.
        """
        torch.manual_seed(seed)
        sent = self.transfer.receive(
            batch if isinstance(batch, Sent) else self.transfer.send(batch)
        )
        loss = self.compute_loss(self.encode(*sent.batch.events), sent.batch, sent.positions)
        if not self.waits or bool(loss.isfinite()):
            self._update(loss, share * self.learning_rate)
        return loss.detach()

    def compute_loss(
        self, hidden: Tensor, batch: SequenceBatch, positions: Tensor | None = None
    ) -> Tensor:
        """hidden: [B, N, d], what the model knew before the batch's targets."""
        rows, targets = at_targets(hidden, batch.targets, positions)
        repeats = None
        if self.model.repeat is not None and batch.past is not None:
            repeats = Repeats(self.model.repeat(rows), batch.past)
        if self.narrow_loss:  # Fabric returns float32 in any precision
            rows = rows.bfloat16()
        given = () if repeats is None else (repeats,)  # a loss of your own need not know of heads
        return self.loss(rows, targets, self.item_vectors, batch.seen, *given)

    def _update(self, loss: Tensor, learning_rate: float) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
        self.fabric.backward(loss)
        if self.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        for optimizer in self.optimizers:
            optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.model)


class ModelItems(ItemVectors):
    """The items of a model, computed when a loss needs them: all, or only those it sampled."""

    def __init__(self, model: Backbone) -> None:
        self.model = model

    def all(self) -> Scored:
        return Scored(self.model.item_vectors(), self.model.item_bias())

    def of(self, ids: Tensor) -> Scored:
        bias = self.model.item_bias()
        return Scored(self.model.vectors_of(ids), None if bias is None else bias[ids])


def make_fabric(training: TrainingConfig) -> Fabric:
    assert training.precision != "auto", "linrec.training.precision decides before a step is made"
    try:
        with _without_notices():
            return Fabric(
                accelerator=training.device, devices=1, precision=PRECISIONS[training.precision]
            )
    except (RuntimeError, ValueError):  # in the words of Fabric, whose arguments are not ours
        raise InputError(
            f"device {training.device!r} cannot be used ({_why_not(training.device)}); "
            f"try {argument('device', 'cpu')} or {argument('device', 'auto')}"
        ) from None


def _why_not(device: str) -> str:
    if device == "cuda" and torch.version.cuda is None:
        return "this torch was built without CUDA"
    kinds = {"cuda": "CUDA device", "mps": "Apple GPU", "tpu": "TPU"}
    return f"torch finds no {kinds[device]} here" if device in kinds else "there is no such kind"


@contextlib.contextmanager
def _without_notices() -> Iterator[None]:
    """Fabric announces a precision that the run says already; its warnings still appear."""
    logger = logging.getLogger("lightning_fabric.utilities.rank_zero")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


def compiled(module: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The module through torch.compile, which needs a compiler when it is first called."""
    from torch._dynamo.exc import TorchDynamoException

    # dynamic: rows and lengths of a batch change from step to step
    fast = torch.compile(module, dynamic=True)

    def encode(*events: Tensor | None) -> Tensor:
        try:
            hidden: Tensor = fast(*events)
        except TorchDynamoException as error:
            reason = next((line for line in str(error).splitlines() if line.strip()), "no reason")
            raise InputError(
                f"torch.compile failed ({reason}); it needs a C++ compiler such as g++, or leave "
                f"{argument('compile')} out"
            ) from None
        return hidden

    return encode
