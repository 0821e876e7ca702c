"""Cross-entropy over the items that may be shown: the catalogue without what the user has seen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linrec.data.dataset.seen import SeenItems
from linrec.ops.exponentials import exponentials_
from linrec.types import PAD

# scores held at a time, 4 MB of them, which stay in the cache ...
SCORES = 2**20
# ... but no fewer rows than this: each chunk adds to the gradient of every item, and with fewer
# rows that is more traffic than arithmetic
MIN_ROWS = 64


def seen_softmax(
    hidden: Tensor,
    item_vectors: Tensor,
    targets: Tensor,
    seen: SeenItems | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Mean over the targets. hidden: [T, d], targets: [T], none of them PAD.

    item_vectors: [n_items + 1, d], bias: [n_items + 1], added to the scores. Neither PAD nor a seen
    item competes with the target; the target itself always counts, seen before or not. Products are
    taken in the precision of `hidden`, sums in float32 or wider. The [targets, items] matrix of
    scores is never held.
    """
    wide = torch.promote_types(hidden.dtype, torch.float32)
    if not len(targets):
        return hidden.sum().to(wide)  # zero, and still part of the graph
    offset = None if bias is None else bias.to(wide)
    with torch.autocast(hidden.device.type, enabled=False):
        loss: Tensor = _CrossEntropy.apply(hidden, item_vectors.to(wide), targets, seen, offset)  # type: ignore[no-untyped-call]
    return loss


def hide_seen_(scores: Tensor, seen: SeenItems, begin: int) -> None:
    """Set the scores [R, n_items] of targets begin, begin + 1, ... at what they have seen to -inf.

    One write per hidden score, never more than there are scores.
    """
    starts, counts = (x[begin : begin + len(scores)] for x in (seen.starts, seen.counts))
    offset = counts.cumsum(0) - counts
    rows = torch.arange(len(scores), device=scores.device) * scores.shape[1]
    places = torch.arange(int(counts.sum()), device=scores.device)
    items = seen.items[places.add_(torch.repeat_interleave(starts - offset, counts))]
    items += torch.repeat_interleave(rows - PAD - 1, counts)
    scores.view(-1).index_fill_(0, items, -torch.inf)


def _chunk_rows(targets: int, items: int) -> int:
    """Chunks of equal size, because a small rest is slow, and whole registers of rows in each."""
    most = max(SCORES // max(items, 1), MIN_ROWS)
    chunks = -(-targets // most)
    return -(-targets // chunks // 16) * 16 if targets > most else targets


class _CrossEntropy(torch.autograd.Function):
    """The gradient, softmax minus one-hot, follows from the scores at once.

    So it is made where they are, chunk by chunk of rows, in three products and without keeping
    them: what is left for the way back is as large as the inputs.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        vectors: Tensor,
        labels: Tensor,
        seen: SeenItems | None,
        bias: Tensor | None,
    ) -> Tensor:
        """hidden: [T, d], vectors: [V + 1, d], labels: [T], bias: [V + 1]."""
        narrow, items = hidden.dtype, vectors[PAD + 1 :].to(hidden.dtype)
        to_hidden = torch.empty_like(hidden, dtype=vectors.dtype)
        to_vectors = torch.zeros_like(vectors)
        to_bias = None if bias is None else torch.zeros_like(bias)
        rows = _chunk_rows(len(hidden), len(items))
        total = vectors.new_zeros(())
        for begin in range(0, len(hidden), rows):
            x, own = hidden[begin : begin + rows], labels[begin : begin + rows, None] - PAD - 1
            scores = torch.mm(x, items.T).to(vectors.dtype)
            if bias is not None:
                scores += bias[PAD + 1 :]
            right = scores.gather(1, own)
            if seen is not None:
                hide_seen_(scores, seen, begin)
                scores.scatter_(1, own, right)
            largest, whole = exponentials_(scores)
            total += (whole.log() + largest - right).sum()
            # softmax minus one-hot, times the whole: the difference is taken before rounding, and
            # the division where it is one number per row and not one per item
            difference = scores.scatter_add_(1, own, -whole).to(narrow)
            torch.div(torch.mm(difference, items), whole, out=to_hidden[begin : begin + rows])
            to_vectors[PAD + 1 :] += torch.mm(difference.T, (x / whole).to(narrow))
            if to_bias is not None:
                to_bias[PAD + 1 :].addmv_(scores.T, whole[:, 0].reciprocal())
        ctx.save_for_backward(to_hidden, to_vectors, to_bias)
        ctx.narrow = narrow
        return total / len(labels)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        to_hidden, to_vectors, to_bias = ctx.saved_tensors
        each = gradients[0] / len(to_hidden)
        return (
            (to_hidden * each).to(ctx.narrow),
            to_vectors * each,
            None,
            None,
            None if to_bias is None else to_bias * each,
        )
