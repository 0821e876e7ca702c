"""Generalised binary cross-entropy (gSASRec: Petrov & Macdonald, RecSys 2023).

With few of many items as negatives, binary cross-entropy makes a model overconfident: it hardly
ever sees a wrong item. Raising the target's probability to a power beta below one takes that back.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.losses.loss import Candidates, Loss
from linrec.losses.sampling import IntArray, Sampler, own_score

# targets that share their draws: then their scores are one product, and not a gathered row a draw,
# which would cost more than a catalogue of thousands does; yet a step meets many items
TOGETHER = 32


class GBCE(Loss):
    """Negatives are drawn from all items alike, as the calibration assumes."""

    own_settings = {"negatives": 256, "calibration": 0.75, "sparse_items": False}  # noqa: RUF012

    def __init__(self, counts: IntArray, *, negatives: int, calibration: float) -> None:
        super().__init__(counts)
        # there are no more, and a target would be outweighed by the same items over and over
        self.negatives = min(negatives, max(self.n_items - 1, 1))
        self.sampler = Sampler(counts, power=0.0)
        self.beta = target_power(self.negatives, self.n_items, calibration)

    def candidates(self, targets: Tensor) -> Tensor:
        groups = -(-len(targets) // TOGETHER)
        drawn = self.sampler.draw(groups, self.negatives, device=targets.device)
        return torch.cat([targets, drawn.flatten()])

    def __call__(self, hidden: Tensor, targets: Tensor, candidates: Candidates) -> Tensor:
        items, (vectors, bias, _) = candidates.items, candidates
        assert items is not None
        count = len(targets)
        drawn = items[count:].view(-1, self.negatives)  # [groups, K]
        missing = len(drawn) * TOGETHER - count
        grouped = F.pad(hidden, (0, 0, 0, missing)).view(len(drawn), TOGETHER, hidden.shape[1])
        with torch.autocast(hidden.device.type, enabled=False):
            own = own_score(hidden, vectors[:count], None if bias is None else bias[:count])
            others = (
                grouped @ vectors[count:].view(*drawn.shape, hidden.shape[1]).mT
            )  # [groups, together, K]
        if bias is not None:
            others = others + bias[count:].view(len(drawn), 1, self.negatives)
        hits = drawn[:, None] == F.pad(targets, (0, missing)).view(len(drawn), TOGETHER, 1)
        return gbce(own, others.flatten(0, 1)[:count], hits.flatten(0, 1)[:count], self.beta)


def gbce(own: Tensor, others: Tensor, hits: Tensor, beta: float) -> Tensor:
    """own: [T], the targets' scores; others, hits: [T, K], scores and what not to count.

    beta 1 is binary cross-entropy.
    """
    wrong = F.softplus(others).masked_fill(hits, 0.0).sum()  # -log(1 - sigmoid)
    right = beta * F.softplus(-own).sum()  # -log(sigmoid ** beta)
    return (right + wrong) / max(len(own), 1) / (others.shape[1] + 1)


def target_power(negatives: int, n_items: int, calibration: float) -> float:
    """beta of the paper, from its t: 0 leaves scores overconfident, 1 makes them probabilities."""
    rate = negatives / max(n_items - 1, 1)
    return rate * (calibration * (1 - 1 / rate) + 1 / rate)
