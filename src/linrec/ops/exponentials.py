"""The exponentials of a softmax, in place: two passes over a row that is still in the cache."""

from __future__ import annotations

import torch
from torch import Tensor

from linrec.ops import fused


def exponentials_(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Replace each row of scores [R, V] by exp(score - largest of the row).

    Returns the largest of each row and the sum of its exponentials, [R, 1] each.
    """
    if fused.takes(scores, (torch.float32,)):
        return fused.exponentials_(scores)
    largest = scores.amax(1, keepdim=True)
    scores.sub_(largest).exp_()
    return largest, scores.sum(1, keepdim=True)
