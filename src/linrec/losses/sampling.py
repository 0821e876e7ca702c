"""Negatives, drawn with torch's generator: the seed of a step fixes them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrec.types import PAD

IntArray = NDArray[np.int64]


class Sampler:
    """Draws items with replacement, each in proportion to (1 + how often it occurs) ** power.

    The 1 lets an item be drawn that is never a target: without ever being a negative, its score
    would never be pushed down. Power 0 draws all items alike.
    """

    def __init__(self, counts: IntArray, power: float) -> None:
        """counts: [n_items + 1], PAD first."""
        weight = (1.0 + torch.from_numpy(counts[PAD + 1 :]).double()) ** power
        share = weight / weight.sum()
        # in double precision: a million shares in float32 do not add up to one
        self.reach = share.cumsum(0)
        self.log_share = share.log().float()

    def draw(self, *shape: int, device: torch.device) -> Tensor:
        """Item indices of this shape."""
        self.reach = self.reach.to(device)
        index = torch.searchsorted(
            self.reach, torch.rand(shape, dtype=self.reach.dtype, device=device), right=True
        )
        # rounding may leave the last reach a little below one
        return index.clamp_(max=len(self.reach) - 1) + PAD + 1

    def log_probability(self, items: Tensor) -> Tensor:
        self.log_share = self.log_share.to(items.device)
        return self.log_share[items - PAD - 1]


def own_score(hidden: Tensor, vectors: Tensor, bias: Tensor | None) -> Tensor:
    """The score of each row with its own vector: [T, d], [T, d] -> [T]."""
    score = (hidden * vectors).sum(-1)
    return score if bias is None else score + bias
