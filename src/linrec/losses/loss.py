"""What training needs of every loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from linrec.losses.config import LossConfig
from linrec.losses.items import ItemVectors
from linrec.losses.repeats import Repeats
from linrec.losses.sampling import IntArray
from linrec.types import PAD, BatchPart, SeenItems


def target_positions(targets: Tensor) -> Tensor:
    """[T]: where the flattened targets are no padding."""
    return (targets.flatten() != PAD).nonzero()[:, 0]


def at_targets(
    hidden: Tensor, targets: Tensor, positions: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """[T, d] and [T]: all positions that have a target, row by row.

    positions: `target_positions`, if they are known; on a GPU they would have to be waited for.
    """
    rows, labels = hidden.flatten(0, -2), targets.flatten()
    index = target_positions(targets) if positions is None else positions
    if len(index) < len(labels):
        rows, labels = rows.index_select(0, index), labels.index_select(0, index)
    return rows, labels


class Loss(ABC):
    """How far a model is from the truth, as one number with a gradient."""

    Config: ClassVar[type[LossConfig]] = LossConfig
    """Its settings, with their defaults."""

    takes_bfloat16: ClassVar[bool] = False
    """Whether hidden vectors may be bfloat16 in a training with that precision."""

    part: BatchPart | None = None
    """Where the given targets are among those of the step, if several workers share it. A loss that
    draws something for each target draws it for all of them and takes its own."""

    def __init__(self, config: LossConfig, counts: IntArray) -> None:
        """counts: [n_items + 1], how often each item occurs in training."""
        del config
        self.n_items = len(counts) - 1

    @abstractmethod
    def __call__(
        self,
        hidden: Tensor,
        targets: Tensor,
        items: ItemVectors,
        seen: SeenItems | None = None,
        repeats: Repeats | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The mean over the targets, weighted where there are weights.

        hidden: [T, d], what the model knew before each target. targets: [T], none of them PAD
        (`at_targets` chose them). items: all of them, or those that the loss samples. seen: what
        each target is not compared with, because it will never be shown; the target itself counts.
        repeats: what the scores of past items gain, if the model has a repeat head. weights: [T],
        from 0 on, how much each target counts.
        """
