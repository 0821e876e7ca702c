"""Batches on their way to the device, one ahead of the step that needs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from linrec.losses.loss import target_positions
from linrec.ops.mechanism import remember_padding
from linrec.types import SequenceBatch

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Key = TypeVar("Key")


class Sent(NamedTuple):
    """A batch on the device. What depends on its content is counted before it goes there, because
    counting there would have to be waited for.
    """

    batch: SequenceBatch
    positions: Tensor  # of all targets, in the flattened batch
    n_targets: int


class Transfer:
    """Copies batches: on a GPU from pinned memory, on a stream of their own."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        cuda = fabric.device.type == "cuda"
        self.stream: torch.cuda.Stream | None = None
        if cuda:
            self.stream = torch.cuda.Stream(fabric.device)  # type: ignore[no-untyped-call]

    def send(self, batch: SequenceBatch) -> Sent:
        positions = target_positions(batch.targets)
        sent = Sent(batch, positions, len(positions))
        if self.stream is None:
            return self._moved(sent)
        with torch.cuda.stream(self.stream):  # Fabric does not wait for copies to a GPU
            return self._moved(apply_to_collection(sent, Tensor, Tensor.pin_memory))

    def receive(self, sent: Sent) -> Sent:
        """What is computed from now on finds the batch there."""
        if self.stream is not None:
            current = torch.cuda.current_stream(self.fabric.device)
            current.wait_stream(self.stream)
            # else its memory could be given away while the step still reads it
            apply_to_collection(sent, Tensor, lambda x: x.record_stream(current))
        return sent

    def ahead(self, batches: Iterable[tuple[Key, SequenceBatch]]) -> Iterator[tuple[Key, Sent]]:
        """On a GPU, each batch is sent before the step with the one before it is taken."""
        waiting: tuple[Key, Sent] | None = None
        for key, batch in batches:
            sent = key, self.send(batch)
            if self.stream is None:
                yield sent
                continue
            if waiting is not None:
                yield waiting
            waiting = sent
        if waiting is not None:
            yield waiting

    def _moved(self, sent: Sent) -> Sent:
        moved: Sent = self.fabric.to_device(sent)
        remember_padding(moved.batch.keep, sent.batch.keep)
        return moved
