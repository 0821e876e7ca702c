"""One step of training: a batch in, better weights out."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from linrec.backbones import Backbone
from linrec.data.dataset.sequences import IntArray
from linrec.layers.dropout import rows_from
from linrec.losses import ItemVectors, build_loss
from linrec.losses.items import Scored
from linrec.losses.loss import at_targets
from linrec.losses.repeats import Repeats
from linrec.runs.config import RunConfig, TrainingConfig
from linrec.training.average import WeightAverage
from linrec.training.optimizer import optimizers_of
from linrec.training.transfer import Sent, Transfer
from linrec.training.workers import Workers, check_devices, check_divisible
from linrec.training.world import World
from linrec.types import BatchPart, InputError, SequenceBatch, argument

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PRECISIONS: dict[str, Literal["32-true", "bf16-mixed"]] = {
    "float32": "32-true",
    "bfloat16": "bf16-mixed",
}


class Step:
    """A model with its loss, its optimizers and the device it is trained on."""

    def __init__(
        self, model: Backbone, config: RunConfig, counts: IntArray, world: World | None = None
    ) -> None:
        """counts: [n_items + 1], how often each item occurs in training.

        world: the processes that share the batches; None takes every step alone.
        """
        training, world = config.training, world or World()
        if world.count > 1:
            check_divisible(config)
        self.model = model
        self.fabric = make_fabric(replace(training, device=device_of(config)), world)
        self.workers = Workers(world, self.fabric.device)
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
        part = sent.batch.part
        loss = self._part_of_loss(sent, part) if part is not None else self._whole_loss(sent)
        value = self.workers.sum(loss.detach().clone())
        if not self.waits or bool(value.isfinite()):
            self._update(loss, share * self.learning_rate)
        return value

    def _whole_loss(self, sent: Sent) -> Tensor:
        return self.compute_loss(self.encode(*sent.batch.events), sent.batch, sent.positions)

    def _part_of_loss(self, sent: Sent, part: BatchPart) -> Tensor:
        """What this worker adds to the (weighted) mean over the targets of the whole batch."""
        if not len(sent.batch.items):
            return torch.zeros((), device=self.fabric.device)
        self.loss.part = part
        with rows_from(part.first_row):
            hidden = self.encode(*sent.batch.events)
        own = self.compute_loss(hidden, sent.batch, sent.positions)
        return own * part.share

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
        # a loss of your own need not know of heads, nor of weights
        given: dict[str, Any] = {} if repeats is None else {"repeats": repeats}
        if batch.weights is not None:
            given["weights"] = batch.weights
        return self.loss(rows, targets, self.item_vectors, batch.seen, **given)

    def _update(self, loss: Tensor, learning_rate: float) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
        if loss.requires_grad:
            self.fabric.backward(loss)
        if self.workers.several:
            sparse = self.model.item.weight if self.model.item.sparse else None
            self.workers.sum_gradients(list(self.model.parameters()), sparse)
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
        return Scored(self.model.item_vectors(), self.model.compared_bias())

    def of(self, ids: Tensor) -> Scored:
        bias = self.model.compared_bias()
        return Scored(self.model.vectors_of(ids), None if bias is None else bias[ids])


def device_of(config: RunConfig) -> str:
    """The device that was chosen; for a model that reads times "auto" is never an Apple GPU."""
    device = config.training.device
    if not config.model.time_gaps or not torch.backends.mps.is_available():
        return device
    if device == "mps":
        raise InputError(
            "times are numbers of 64 bits, which Apple's GPUs do not have; choose "
            f"{argument('device', 'cpu')}, or train a model without {argument('time_gaps')}"
        )
    return "cpu" if device == "auto" else device


def make_fabric(training: TrainingConfig, world: World) -> Fabric:
    from lightning_fabric import Fabric  # imports torch's compiler; not all who load a run train

    assert training.precision != "auto", "linrec.training.precision decides before a step is made"
    precision = PRECISIONS[training.precision]
    try:
        with _without_notices():
            if world.count == 1:
                return Fabric(accelerator=training.device, devices=1, precision=precision)
            from linrec.training.summed_gradients import SummedGradients

            check_devices(training.device, world)
            fabric = Fabric(
                accelerator=training.device, devices=world.local_count, num_nodes=world.machines,
                strategy=SummedGradients(), precision=precision,
            )  # fmt: skip
            fabric.launch()
            return fabric
    except InputError:
        raise
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
    """Fabric announces what the run says already; its warnings still appear."""
    names = ("rank_zero", "distributed")
    loggers = [logging.getLogger(f"lightning_fabric.utilities.{name}") for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


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
