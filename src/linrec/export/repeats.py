"""The repeat head in a graph: counts of all items of the catalogue, from a whole history.

In a graph every size but batch and length is fixed, so the counts have one column per item where
`layers.repeats` has one row per item of the past. The formula is the same.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from linrec.data.dataset.half_lives import IN_EVENTS, IN_SECONDS
from linrec.types import PAD

WHY_NO_STEP = (
    "a repeat head counts every item of a user's past, which has no fixed size; give whole "
    "histories to model.onnx"
)


def repeat_additions(
    weights: Tensor, items: Tensor, moments: tuple[Tensor, Tensor] | None, n_items: int
) -> Tensor:
    """What every score gains: [B, n_items + 1].

    weights: [B, 1 + K], of a `RepeatHead`. items: [B, N], PAD at the end. moments: times [B, N] and
    the request's [B], NaN where unknown, if counts decay with time too.
    """
    empty = weights.new_zeros(items.shape[0], n_items + 1)
    seen = empty.scatter_add(1, items, (items != PAD).to(weights.dtype)) > 0
    gained = weights[:, :1] * seen
    for k, left in enumerate(_remaining(items, moments), start=1):
        counts = empty.scatter_add(1, items, left.to(weights.dtype))
        gained = gained + weights[:, k : k + 1] * torch.log1p(counts)
    return gained


def _remaining(items: Tensor, moments: tuple[Tensor, Tensor] | None) -> list[Tensor]:
    """What each event counts, for each half-life: [B, N], 0 on padding."""
    keep = items != PAD
    places = torch.arange(items.shape[1], device=items.device)
    ages = (keep.sum(1, keepdim=True) - 1 - places).clamp(min=0).float()
    left = [torch.exp(ages * (-math.log(2) / half)) * keep for half in IN_EVENTS]
    if moments is None:
        return left
    times, at = moments
    known = keep & ~times.isnan()
    lowest = torch.finfo(times.dtype).min
    newest = times.where(known, lowest).amax(1)
    request = torch.maximum(at.where(~at.isnan(), lowest), newest)[:, None]
    seconds = (request - times).where(known, 0.0).float()
    return left + [torch.exp(seconds * (-math.log(2) / half)) * known for half in IN_SECONDS]
