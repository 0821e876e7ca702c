"""What training asks of every loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from linrec.losses.sampling import IntArray
from linrec.types import PAD


class Candidates(NamedTuple):
    """The items that a loss compares, as its model sees them."""

    vectors: Tensor  # [n_items + 1, d] with PAD first; or [M, d], in the order they were asked for
    bias: Tensor | None  # [n_items + 1] or [M], added to the scores
    items: Tensor | None = None  # [M], None where it is the whole catalogue


def at_targets(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """[T, d] and [T]: all positions that have a target, in float32 or wider.

    Cross-entropy in eight bits would move in steps of a hundredth.
    """
    rows, labels = hidden.flatten(0, -2), targets.flatten()
    places = (labels != PAD).nonzero()[:, 0]
    if len(places) < len(labels):
        rows, labels = rows.index_select(0, places), labels.index_select(0, places)
    return rows.to(torch.promote_types(hidden.dtype, torch.float32)), labels


class Loss(ABC):
    """How far a model is from the truth, as one number with a gradient.

    T targets, each with what the model knew before it: hidden [T, d], targets [T].
    """

    own_settings: ClassVar[Mapping[str, Any]] = {}
    """The settings that not every loss has, with their defaults."""

    def __init__(self, counts: IntArray) -> None:
        """counts: [n_items + 1], how often each item occurs in training.

        The loss's own settings come with it, by name.
        """
        self.n_items = len(counts) - 1

    def candidates(self, targets: Tensor) -> Tensor | None:
        """The items [M] to be scored, the targets themselves first; None for the catalogue."""
        del targets
        return None

    @abstractmethod
    def __call__(self, hidden: Tensor, targets: Tensor, candidates: Candidates) -> Tensor:
        """The mean over the targets."""
