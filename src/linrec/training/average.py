"""An exponential moving average of the weights."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from linrec.backbones import Backbone

Tensors = tuple[Tensor, ...] | list[Tensor]


class WeightAverage(AveragedModel):
    """A second model whose weights follow those of the first.

    The decay rises to its full value over the first steps, so that a short training is not
    dominated by the weights it began with.
    """

    def __init__(self, model: Backbone, decay: float) -> None:
        def follow(averages: Tensors, weights: Tensors, updates: Tensor | int) -> None:
            count = int(updates)
            share = 1.0 - min(decay, (1 + count) / (10 + count))
            for average, weight in zip(averages, weights, strict=True):
                average.lerp_(weight, share)

        super().__init__(model, multi_avg_fn=torch.no_grad()(follow))

    @property
    def averaged(self) -> Backbone:
        model = self.module
        assert isinstance(model, Backbone)
        return model
