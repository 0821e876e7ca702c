"""Cross-entropy over the whole catalogue."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from linrec.losses.loss import Candidates, Loss, at_targets
from linrec.ops.exponentials import exponentials_
from linrec.types import PAD

# scores held at a time, 4 MB of them, which stay in the cache ...
SCORES = 2**20
# ... but no fewer rows than this: each chunk adds to the gradient of every item, and with fewer
# rows that is more traffic than arithmetic
LEAST_ROWS = 64


class FullSoftmax(Loss):
    def __call__(self, hidden: Tensor, targets: Tensor, candidates: Candidates) -> Tensor:
        return full_softmax(hidden, candidates.vectors, targets, candidates.bias)


def full_softmax(
    hidden: Tensor, item_vectors: Tensor, targets: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Mean over all positions that have a target. hidden: [..., d], targets: [...].

    item_vectors: [n_items + 1, d], bias: [n_items + 1], added to the scores. PAD competes with no
    item. The [targets, items] matrix of scores is never held.
    """
    chosen, labels = at_targets(hidden, targets)
    wide = chosen.dtype
    if not len(labels):
        return chosen.sum()  # zero, and still part of the graph
    offset = None if bias is None else bias.to(wide)
    with torch.autocast(hidden.device.type, enabled=False):
        loss: Tensor = _CrossEntropy.apply(chosen, item_vectors.to(wide), labels, offset)  # type: ignore[no-untyped-call]
    return loss


def _up_to(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


class _CrossEntropy(torch.autograd.Function):
    """The gradient, softmax minus one-hot, follows from the scores at once.

    So it is made where they are, chunk by chunk of rows, in three products and without keeping
    them: what is left for the way back is as large as the inputs.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, vectors: Tensor, labels: Tensor, bias: Tensor | None
    ) -> Tensor:
        """hidden: [T, d], vectors: [V + 1, d], labels: [T], bias: [V + 1]."""
        to_hidden, to_vectors = torch.empty_like(hidden), torch.zeros_like(vectors)
        to_bias = None if bias is None else torch.zeros_like(bias)
        items = vectors[PAD + 1 :]
        most = max(SCORES // max(len(items), 1), LEAST_ROWS)
        # all chunks alike, because a small rest is slow, and whole registers of rows in each
        rows = _up_to(-(-len(hidden) // -(-len(hidden) // most)), 16)
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
            # divided by the whole where it is one number a row and not one an item
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
