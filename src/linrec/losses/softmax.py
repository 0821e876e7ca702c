"""Cross-entropy over the whole catalogue, or over what of it the user has not seen."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from linrec.layers.repeats import pairs_of
from linrec.losses.items import ItemVectors, Scored
from linrec.losses.loss import Loss, at_targets
from linrec.losses.repeats import Repeats
from linrec.losses.weighing import relative
from linrec.ops.cross_entropy import cross_entropy_
from linrec.types import PAD, PastCounts, SeenItems

# scores held at a time, 4 MB of them, which stay in the cache ...
SCORES = 2**20
# ... but no fewer rows than this: each chunk adds to the gradient of every item, and with fewer
# rows that is more traffic than arithmetic
MIN_ROWS = 64


class FullSoftmax(Loss):
    """Cross-entropy with all items as alternatives."""

    takes_bfloat16: ClassVar[bool] = True

    def __call__(
        self,
        hidden: Tensor,
        targets: Tensor,
        items: ItemVectors,
        seen: SeenItems | None = None,
        repeats: Repeats | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        return _cross_entropy(hidden, targets, items.all(), seen, repeats, weights)


def full_softmax(
    hidden: Tensor,
    item_vectors: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    seen: SeenItems | None = None,
    repeats: Repeats | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Mean over all positions that have a target. hidden: [..., d], targets: [...].

    item_vectors: [n_items + 1, d], bias: [n_items + 1], added to the scores. Neither PAD nor a seen
    item competes with the target; the target itself always counts, seen before or not. repeats:
    what past items gain. weights: [targets], how much each counts, row by row. Products are taken
    in the precision of `hidden`, sums in float32 or wider.
    The [targets, items] matrix of scores is never held.
    """
    items = Scored(item_vectors, bias)
    return _cross_entropy(*at_targets(hidden, targets), items, seen, repeats, weights)


def _cross_entropy(
    hidden: Tensor,
    labels: Tensor,
    items: Scored,
    seen: SeenItems | None,
    repeats: Repeats | None,
    counted: Tensor | None,
) -> Tensor:
    """hidden: [T, d], labels: [T], items: all of them, PAD first."""
    # cross-entropy in eight bits would move in steps of a hundredth
    wide = torch.promote_types(hidden.dtype, torch.float32)
    if not len(labels):
        return hidden.sum().to(wide)  # zero, and still part of the graph
    offset = None if items.bias is None else items.bias.to(wide)
    weights, past = (None, None) if repeats is None else (repeats.weights.to(wide), repeats.past)
    with torch.autocast(hidden.device.type, enabled=False):
        loss: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden,
            items.vectors.to(wide),
            labels,
            offset,
            seen,
            weights,
            past,
            None if counted is None else relative(counted.to(wide)),
        )
    return loss


def _chunk_rows(targets: int, items: int) -> int:
    """Chunks of equal size, because a small remainder is slow, and whole registers of rows."""
    most = max(SCORES // max(items, 1), MIN_ROWS)
    chunks = -(-targets // most)
    return -(-targets // chunks // 16) * 16 if targets > most else targets


class _CrossEntropy(torch.autograd.Function):
    """The gradient, softmax minus one-hot, follows from the scores at once.

    So it is computed with them, chunk by chunk of rows, in three products and without keeping
    them: what is saved for the backward pass is as large as the inputs.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        vectors: Tensor,
        labels: Tensor,
        bias: Tensor | None,
        seen: SeenItems | None,
        weights: Tensor | None,
        past: PastCounts | None,
        counted: Tensor | None,
    ) -> Tensor:
        """hidden: [T, d], vectors: [V + 1, d], labels: [T], bias: [V + 1], weights: [T, 1 + K] of
        the repeat head, counted: [T], how much each target counts, 1 in the mean."""
        narrow, items = hidden.dtype, vectors[PAD + 1 :].to(hidden.dtype)
        to_hidden = torch.empty_like(hidden, dtype=vectors.dtype)
        to_vectors = torch.zeros_like(vectors)
        to_bias = None if bias is None else torch.zeros_like(bias)
        repeats = None if weights is None or past is None else _RepeatRows(weights, past)
        rows = _chunk_rows(len(hidden), len(items))
        # a bias or what past items gain would be lost in the rounding of narrow scores
        exact = bias is not None or repeats is not None
        scores = hidden.new_empty(rows, len(items), dtype=vectors.dtype if exact else narrow)
        total = vectors.new_zeros(())
        for begin in range(0, len(hidden), rows):
            chunk = slice(begin, begin + rows)
            x, gradient = hidden[chunk], to_hidden[chunk]
            share = scores[: len(x)]
            _product(x, items.T, out=share)
            if bias is not None:
                share += bias[PAD + 1 :]
            if repeats is not None:
                repeats.add_(share, begin)
            past_items = None if seen is None else seen.of(chunk)
            whole, losses = cross_entropy_(share, labels[chunk] - PAD - 1, past_items)
            if counted is not None:  # every gradient below is divided by `whole`
                losses, whole = losses * counted[chunk], whole / counted[chunk]
            total += losses.sum()
            difference = share.to(narrow)
            _product(difference, items, out=gradient)
            gradient.div_(whole[:, None])
            _add_product_(to_vectors[PAD + 1 :], difference.T, (x / whole[:, None]).to(narrow))
            if to_bias is not None:
                to_bias[PAD + 1 :].addmv_(share.T, whole.reciprocal())
            if repeats is not None:
                repeats.differentiate(share, whole)
        ctx.save_for_backward(
            to_hidden, to_vectors, to_bias, None if repeats is None else repeats.to_weights
        )
        ctx.narrow = narrow
        return total / len(labels)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        to_hidden, to_vectors, to_bias, to_repeats = ctx.saved_tensors
        each = gradients[0] / len(to_hidden)
        return (
            (to_hidden * each).to(ctx.narrow),
            to_vectors * each,
            None,
            None if to_bias is None else to_bias * each,
            None,
            None if to_repeats is None else to_repeats * each,
            None,
            None,
        )


class _RepeatRows:
    """What past items gain, a chunk of rows at a time, and the gradient of the weights."""

    def __init__(self, weights: Tensor, past: PastCounts) -> None:
        self.weights, self.past = weights, past
        self.to_weights = torch.zeros_like(weights)

    def add_(self, scores: Tensor, begin: int) -> None:
        """To the scores [R, n_items] of targets begin, begin + 1, ..."""
        self.chunk = slice(begin, begin + len(scores))
        self.pairs = pairs_of(self.past, begin, begin + len(scores))
        self.places = self.pairs.rows * scores.shape[1] + (self.pairs.items - PAD - 1)
        gained = self.pairs.gains(self.weights[self.chunk])
        scores.view(-1).index_add_(0, self.places, gained)

    def differentiate(self, difference: Tensor, whole: Tensor) -> None:
        """difference: softmax minus one-hot, times `whole` [R], of the same scores."""
        gradient = difference.view(-1)[self.places] / whole[self.pairs.rows]
        self.to_weights[self.chunk] = self.pairs.to_weights(gradient)


def _product(a: Tensor, b: Tensor, *, out: Tensor) -> None:
    """out = a @ b, in the precision of a and b."""
    if a.dtype == out.dtype:
        torch.mm(a, b, out=out)
    else:
        out.copy_(torch.mm(a, b))


def _add_product_(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, the product in the precision of a and b."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total += torch.mm(a, b)
