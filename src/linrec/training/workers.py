"""What the processes of one training tell each other.

All of them hold the same weights and take the same steps. A step sums the gradients of all, so
that each makes the update that a single process would make. Only the first one writes files; what
it read or decided it sends to the others.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn

from linrec.backbones.config import ModelConfig
from linrec.data.dataset.sequences import IntArray
from linrec.runs.config import RunConfig
from linrec.training.world import WorkerLostError, World
from linrec.types import InputError, argument

# gradients with fewer numbers travel together: a message costs more than what is in it
SMALL = 2**20


class Workers:
    """The group as one of its processes sees it; alone, every method returns what it is given."""

    def __init__(self, world: World, device: torch.device) -> None:
        self.world, self.device = world, device
        if self.several:
            _leave_at_exit()

    @property
    def several(self) -> bool:
        return self.world.count > 1

    def sum(self, value: Tensor) -> Tensor:
        """The sum over the workers, in place."""
        if self.several:
            with self._noticing():
                torch.distributed.all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:
        """Whether it is true for any of them. All must call it at the same step."""
        if not self.several:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=self.device)) > 0)

    def joined(self, part: IntArray, begin: int, total: int) -> IntArray:
        """[total], from the part of each worker, of which this one's begins at `begin`."""
        if not self.several:
            return part
        whole = torch.zeros(total, dtype=torch.int64, device=self.device)
        whole[begin : begin + len(part)] = torch.from_numpy(part).to(self.device)
        return np.asarray(self.sum(whole).cpu().numpy(), np.int64)

    def from_first(self, content: bytes) -> bytes:
        """What the first worker gave."""
        if not self.several:
            return content
        size = torch.tensor([len(content)], device=self.device)
        with self._noticing():
            torch.distributed.broadcast(size, 0)
            sent = torch.zeros(int(size), dtype=torch.uint8, device=self.device)
            if self.world.is_first:
                sent.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
            torch.distributed.broadcast(sent, 0)
        return sent.cpu().numpy().tobytes()

    def sum_gradients(self, parameters: Sequence[nn.Parameter], sparse: Tensor | None) -> None:
        """Give every parameter the sum of its gradients; sparse: the one whose rows travel alone.

        A parameter without a gradient on any worker is left without one, as Adam would skip it.
        """
        dense = [each for each in parameters if each is not sparse]
        given = torch.tensor([float(each.grad is not None) for each in dense], device=self.device)
        for each in dense:
            if each.grad is None:
                each.grad = torch.zeros_like(each)
        small = [each.grad for each in dense if each.grad is not None and each.numel() < SMALL]
        together = self.sum(torch.cat([given, *(gradient.flatten() for gradient in small)]))
        sizes = [len(given), *(gradient.numel() for gradient in small)]
        counts, *sums = torch.split(together, sizes)
        for gradient, total in zip(small, sums, strict=True):
            gradient.copy_(total.view_as(gradient))
        for each, count in zip(dense, counts.tolist(), strict=True):
            assert each.grad is not None
            if not count:
                each.grad = None
            elif each.numel() >= SMALL:
                self.sum(each.grad)
        if sparse is not None:
            self._sum_rows(sparse)

    def _sum_rows(self, table: Tensor) -> None:
        """Only the rows that a worker has touched travel."""
        own = table.grad
        rows, values = torch.zeros(0, dtype=torch.int64), table.new_zeros(0, table.shape[1])
        if own is not None:
            own = own.coalesce()
            rows, values = own.indices()[0], own.values()
        counts = self._gathered(torch.tensor([len(rows)], device=self.device))
        longest = int(max(counts))
        missing = longest - len(rows)
        all_rows = self._gathered(nn.functional.pad(rows.to(self.device), (0, missing)))
        all_values = self._gathered(nn.functional.pad(values, (0, 0, 0, missing)))
        index = torch.cat([part[: int(n)] for part, n in zip(all_rows, counts, strict=True)])
        vectors = torch.cat([part[: int(n)] for part, n in zip(all_values, counts, strict=True)])
        table.grad = torch.sparse_coo_tensor(index[None], vectors, table.shape).coalesce()

    def _gathered(self, value: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(value) for _ in range(self.world.count)]
        with self._noticing():
            torch.distributed.all_gather(parts, value.contiguous())
        return parts

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """A connection that breaks means that another worker has ended."""
        try:
            yield
        except RuntimeError:
            raise WorkerLostError(self.world.rank, self.world.count) from None


@cache
def _leave_at_exit() -> None:
    """The threads of a group that is not closed would abort the process at its end."""

    def leave() -> None:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    atexit.register(leave)


def check_divisible(config: RunConfig) -> None:
    """Refuse what several workers would compute otherwise than one."""
    alone = "train it in one process"
    model = config.model
    assert isinstance(model, ModelConfig)
    if model.backbone == "core" and config.loss.samples_items and model.dropout:
        raise InputError(
            f"core drops out the vectors of sampled items together with those of the targets, "
            f"which cannot be divided over workers; {alone}, or with {argument('loss', 'softmax')}"
        )
    if config.training.compile:
        raise InputError(
            f"compiled steps draw dropout in an order of their own, which would differ between "
            f"workers; leave {argument('compile')} out, or {alone}"
        )


def check_devices(device: str, world: World) -> None:
    """Refuse more workers than a machine has GPUs."""
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return
    count = torch.cuda.device_count()
    if device not in ("auto", "cuda") or (count and count < world.local_count):
        has = f"this machine has {count}" if device in ("auto", "cuda") else "it has no way to add"
        raise InputError(
            f"{world.local_count} workers need a GPU each, and {has}; train with fewer workers or "
            f"with {argument('device', 'cpu')}"
        )
