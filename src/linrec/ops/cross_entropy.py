"""The cross-entropy of rows of scores, and its gradient in their place.

One pass over a row that is still in the cache: hide, exponentials, their sum, subtract the label.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linrec.ops import fused, rows
from linrec.types import PAD, SeenItems

FIRST_ITEM = PAD + 1  # the item of the first column


def cross_entropy_(
    scores: Tensor, labels: Tensor, seen: SeenItems | None = None
) -> tuple[Tensor, Tensor]:
    """Replace scores [R, n_items] by (softmax - one-hot) times the row's sum of exponentials.

    labels: [R], the column of each row's target. seen: items that do not compete, row by row; the
    target does even if it was seen. Returns that sum and the cross-entropy, [R] each, in float32 or
    wider. The division is left to the caller, for whom it is one number per row and not per item;
    the one-hot is subtracted before anything is rounded to bfloat16.
    """
    if fused.takes(scores):
        return rows.cross_entropy_(scores, labels, seen, FIRST_ITEM)
    own = labels[:, None]
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    right = wide.gather(1, own)
    if seen is not None:
        _hide_(wide, seen)
        wide.scatter_(1, own, right)
    largest = wide.amax(1, keepdim=True)
    wide.sub_(largest).exp_()
    total = wide.sum(1, keepdim=True)
    wide.scatter_add_(1, own, -total)
    if wide is not scores:
        scores.copy_(wide)
    return total[:, 0], (total.log() + largest - right)[:, 0]


def _hide_(scores: Tensor, seen: SeenItems) -> None:
    """Set the scores of each row at what it has seen to -inf: one write per hidden score."""
    offset = seen.counts.cumsum(0) - seen.counts
    rows = torch.arange(len(scores), device=scores.device) * scores.shape[1]
    total = seen.pairs
    starts, begins = (
        torch.repeat_interleave(x, seen.counts, output_size=total)
        for x in (seen.starts - offset, rows - FIRST_ITEM)
    )
    items = seen.items[starts + torch.arange(total, device=scores.device)] + begins
    scores.view(-1).index_fill_(0, items, -torch.inf)
