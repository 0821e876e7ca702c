"""Cross-entropy over the whole catalogue."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.types import PAD


def full_softmax(
    hidden: Tensor, item_vectors: Tensor, targets: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Mean over all positions that have a target. hidden: [B, N, d], targets: [B, N].

    bias: [n_items + 1], added to the scores.
    """
    wanted = targets != PAD
    # in float32: cross-entropy in eight bits would move in steps of a hundredth
    wide = torch.promote_types(hidden.dtype, torch.float32)
    chosen, labels = hidden[wanted].to(wide), targets[wanted] - 1
    if not len(labels):
        return chosen.sum()  # zero, and still part of the graph
    items = item_vectors[PAD + 1 :].to(chosen.dtype)  # PAD can never be the answer
    offset = None if bias is None else bias[PAD + 1 :].to(chosen.dtype)
    if hasattr(F, "linear_cross_entropy") and not torch.compiler.is_compiling():
        # in chunks: the [targets, items] matrix of scores is never held
        options = torch.nn.LinearCrossEntropyOptions()
        loss = F.linear_cross_entropy(chosen, items, labels, linear_bias=offset, options=options)
        return loss.float()
    return F.cross_entropy(F.linear(chosen, items, offset).float(), labels)
