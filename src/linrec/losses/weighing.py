"""Targets that count differently: the mean over them becomes a weighted one."""

from __future__ import annotations

import torch
from torch import Tensor


def relative(weights: Tensor) -> Tensor:
    """[T], scaled so that their mean is 1; all of them 0 stay 0.

    So the plain mean of weighted losses is their weighted mean.
    """
    mean = weights.sum() / max(len(weights), 1)
    return weights / mean.clamp(min=torch.finfo(weights.dtype).tiny)
