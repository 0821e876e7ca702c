"""An exponential moving average of the weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from linrec.backbones import Backbone


class WeightAverage(AveragedModel):
    """A second model whose weights follow those of the first.

    The decay rises to its full value over the first steps, so that a short training is not
    dominated by the weights it began with.
    """

    def __init__(self, model: Backbone, decay: float) -> None:
        super().__init__(model)
        self.decay = decay

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """As torch's own, whose counter goes to a GPU and back at every step."""
        count = int(self.n_averaged)  # on the host
        share = 1.0 - min(self.decay, (1 + count) / (10 + count)) if count else 1.0
        for average, weight in zip(self.module.parameters(), model.parameters(), strict=True):
            average.lerp_(weight, share)
        for copied, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
            copied.copy_(buffer)
        self.n_averaged += 1

    @property
    def averaged(self) -> Backbone:
        model = self.module
        assert isinstance(model, Backbone)
        return model
