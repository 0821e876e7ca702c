"""Cross-entropy over the whole catalogue."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.types import PAD


def full_softmax(hidden: Tensor, item_vectors: Tensor, targets: Tensor) -> Tensor:
    """Mean over all positions that have a target. hidden: [B, N, d], targets: [B, N]."""
    wanted = targets != PAD
    chosen, labels = hidden[wanted], targets[wanted] - 1
    if not len(labels):
        return chosen.float().sum()  # zero, and still part of the graph
    items = item_vectors[1:]  # PAD can never be the answer
    if hasattr(F, "linear_cross_entropy") and not torch.compiler.is_compiling():
        # in chunks: the [targets, items] matrix of scores is never held
        options = torch.nn.LinearCrossEntropyOptions()
        loss = F.linear_cross_entropy(chosen, items.to(chosen.dtype), labels, options=options)
        return loss.float()
    return F.cross_entropy((chosen @ items.T).float(), labels)
