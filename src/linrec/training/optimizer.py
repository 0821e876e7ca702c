"""Adam, in one or two parts."""

from __future__ import annotations

import torch

from linrec.backbones import Backbone
from linrec.runs.config import TrainingConfig


def optimizers_of(model: Backbone, training: TrainingConfig) -> list[torch.optim.Optimizer]:
    """One for all parameters; with `sparse_items` a second one for the item embedding.

    Adam updates every parameter in every step. Of a million items a step has thousands, and
    updating the others costs more than everything else: the second optimizer leaves them and
    their moments unchanged until they occur again.
    """
    rate, decay = training.learning_rate, training.weight_decay
    if not training.sparse_items:
        return [torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay, fused=True)]
    model.item.sparse = True
    table = model.item.weight
    others = [value for value in model.parameters() if value is not table]
    return [
        torch.optim.Adam(others, lr=rate, fused=True),
        torch.optim.SparseAdam([table], lr=rate),
    ]
