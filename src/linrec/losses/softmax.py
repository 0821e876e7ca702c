"""Cross-entropy over the whole catalogue."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linrec.losses.items import ItemVectors
from linrec.losses.loss import Loss, at_targets
from linrec.ops.exponentials import exponentials_
from linrec.types import PAD

# scores held at a time, 4 MB of them, which stay in the cache ...
SCORES = 2**20
# ... but no fewer rows than this: each chunk adds to the gradient of every item, and with fewer
# rows that is more traffic than arithmetic
MIN_ROWS = 64


class FullSoftmax(Loss):
    """Cross-entropy with all items as alternatives."""

    def __call__(self, hidden: Tensor, targets: Tensor, items: ItemVectors) -> Tensor:
        return _cross_entropy(hidden, targets, *items.all())


def full_softmax(
    hidden: Tensor, item_vectors: Tensor, targets: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Mean over all positions that have a target. hidden: [..., d], targets: [...].

    item_vectors: [n_items + 1, d], bias: [n_items + 1], added to the scores. PAD competes with no
    item. The [targets, items] matrix of scores is never held.
    """
    return _cross_entropy(*at_targets(hidden, targets), item_vectors, bias)


def _cross_entropy(hidden: Tensor, labels: Tensor, vectors: Tensor, bias: Tensor | None) -> Tensor:
    """hidden: [T, d], labels: [T], vectors: [n_items + 1, d], bias: [n_items + 1]."""
    wide = hidden.dtype
    if not len(labels):
        return hidden.sum()  # zero, and still part of the graph
    offset = None if bias is None else bias.to(wide)
    with torch.autocast(hidden.device.type, enabled=False):
        loss: Tensor = _CrossEntropy.apply(hidden, vectors.to(wide), labels, offset)  # type: ignore[no-untyped-call]
    return loss


def _up_to(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


class _CrossEntropy(torch.autograd.Function):
    """The gradient, softmax minus one-hot, follows from the scores at once.

    So it is computed with them, chunk by chunk of rows, in three products and without keeping
    them: what is saved for the backward pass is as large as the inputs.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, vectors: Tensor, labels: Tensor, bias: Tensor | None
    ) -> Tensor:
        """hidden: [T, d], vectors: [V + 1, d], labels: [T], bias: [V + 1]."""
        to_hidden, to_vectors = torch.empty_like(hidden), torch.zeros_like(vectors)
        to_bias = None if bias is None else torch.zeros_like(bias)
        items = vectors[PAD + 1 :]
        max_rows = max(SCORES // max(len(items), 1), MIN_ROWS)
        # all chunks alike, because a small remainder is slow, and each of whole registers of rows
        rows = _up_to(-(-len(hidden) // -(-len(hidden) // max_rows)), 16)
        scores = hidden.new_empty(rows, len(items))
        total = hidden.new_zeros(())
        for begin in range(0, len(hidden), rows):
            x, own, gradient = (y[begin : begin + rows] for y in (hidden, labels, to_hidden))
            share = scores[: len(x)]
            torch.mm(x, items.T, out=share)
            if bias is not None:
                share += bias[PAD + 1 :]
            right = share.gather(1, (own - PAD - 1)[:, None])
            largest, whole = exponentials_(share)
            total += (whole.log() + largest - right).sum()
            # divided by the sum here, where it is one number per row and not one per item
            torch.mm(share, items, out=gradient)
            gradient.div_(whole)
            to_vectors[PAD + 1 :].addmm_(share.T, x / whole)
            if to_bias is not None:
                to_bias[PAD + 1 :].addmv_(share.T, whole[:, 0].reciprocal())
        to_hidden -= vectors.index_select(0, labels)
        to_vectors.index_add_(0, labels, hidden, alpha=-1)
        if to_bias is not None:
            to_bias.index_add_(0, labels, to_bias.new_ones(len(labels)), alpha=-1)
        ctx.save_for_backward(to_hidden, to_vectors, to_bias)
        return total / len(labels)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        to_hidden, to_vectors, to_bias = ctx.saved_tensors
        each = gradients[0] / len(to_hidden)
        return (
            to_hidden * each,
            to_vectors * each,
            None,
            None if to_bias is None else to_bias * each,
        )
