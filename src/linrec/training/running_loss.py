"""The losses of several steps, added up where they are computed."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# steps on a GPU between two looks at the loss: a look waits for all work that is queued
STEPS_PER_READ = 20


class Losses(NamedTuple):
    total: float  # each step's mean loss times its targets
    targets: int
    mean: float
    steps: int
    epoch: int  # of the last of them, from 0


class RunningLoss:
    """What has been trained since the loss was last read.

    On the CPU every step is read at once, where it costs nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self.steps_per_read = 1 if device.type == "cpu" else STEPS_PER_READ
        self.total: Tensor | None = None
        self.last = torch.zeros(())
        self.targets = self.steps = self.epoch = 0

    def add(self, loss: Tensor, targets: int, epoch: int) -> None:
        # float64 as in Python, except on Apple's GPUs, which have none
        wide = loss.float() if loss.device.type == "mps" else loss.double()
        total = wide * targets
        self.total = total if self.total is None else self.total + total
        self.targets += targets
        self.last, self.epoch = loss, epoch
        self.steps += 1

    @property
    def is_due(self) -> bool:
        return self.steps >= self.steps_per_read

    def read(self) -> Losses | None:
        """Waits for the device. None if there is nothing to read."""
        if self.total is None:
            return None
        total, targets = float(self.total), self.targets
        mean = float(self.last) if self.steps == 1 else total / max(targets, 1)
        read = Losses(total, targets, mean, self.steps, self.epoch)
        self.total, self.targets, self.steps = None, 0, 0
        return read
