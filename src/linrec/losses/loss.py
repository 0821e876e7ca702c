"""What training needs of every loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from linrec.losses.config import LossConfig
from linrec.losses.items import ItemVectors
from linrec.losses.sampling import IntArray
from linrec.types import PAD


def at_targets(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """[T, d] and [T]: all positions that have a target, in float32 or wider.

    Cross-entropy in eight bits would move in steps of a hundredth.
    """
    rows, labels = hidden.flatten(0, -2), targets.flatten()
    index = (labels != PAD).nonzero()[:, 0]
    if len(index) < len(labels):
        rows, labels = rows.index_select(0, index), labels.index_select(0, index)
    return rows.to(torch.promote_types(hidden.dtype, torch.float32)), labels


class Loss(ABC):
    """How far a model is from the truth, as one number with a gradient."""

    Config: ClassVar[type[LossConfig]] = LossConfig
    """Its settings, with their defaults."""

    def __init__(self, config: LossConfig, counts: IntArray) -> None:
        """counts: [n_items + 1], how often each item occurs in training."""
        del config
        self.n_items = len(counts) - 1

    @abstractmethod
    def __call__(self, hidden: Tensor, targets: Tensor, items: ItemVectors) -> Tensor:
        """The mean over the targets.

        hidden: [T, d], what the model knew before each target. targets: [T], none of them PAD
        (`at_targets` chose them). items: all of them, or those that the loss samples.
        """
