"""Cross-entropy over the target and a sample of the catalogue, corrected for how it was drawn.

A draw k stands for 1 / (K q_k) items, K draws with probability q; so its score is lowered by
log(K q_k) (the logQ correction of Bengio & Senecal 2008 and Yi et al. 2019). The target is always
there and stands for itself alone: nothing is taken off its score, and a draw that hits it is left
out. Then the sum that the target's share is taken of is, on average, the sum over the catalogue.
Yi et al. correct the target too, because theirs is one of the draws.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.losses.loss import Candidates, Loss
from linrec.losses.sampling import IntArray, Sampler, own_score


class SampledSoftmax(Loss):
    """All targets of a step share its draws."""

    own_settings = {"negatives": 2048, "sampling_power": 0.5, "sparse_items": False}  # noqa: RUF012

    def __init__(self, counts: IntArray, *, negatives: int, sampling_power: float) -> None:
        super().__init__(counts)
        self.negatives, self.sampler = negatives, Sampler(counts, sampling_power)

    def candidates(self, targets: Tensor) -> Tensor:
        return torch.cat([targets, self.sampler.draw(self.negatives, device=targets.device)])

    def __call__(self, hidden: Tensor, targets: Tensor, candidates: Candidates) -> Tensor:
        items, (vectors, bias, _) = candidates.items, candidates
        assert items is not None
        drawn = items[len(targets) :]
        expected = self.sampler.log_probability(drawn) + math.log(self.negatives)
        offset = -expected if bias is None else bias[len(targets) :] - expected
        with torch.autocast(hidden.device.type, enabled=False):
            own = own_score(
                hidden, vectors[: len(targets)], None if bias is None else bias[: len(targets)]
            )
            others = torch.addmm(offset.to(hidden.dtype), hidden, vectors[len(targets) :].T)
        return sampled_softmax(own, others, hits=drawn == targets[:, None])


def sampled_softmax(own: Tensor, others: Tensor, hits: Tensor) -> Tensor:
    """own: [T], the targets' scores; others: [T, K], corrected; hits: [T, K], not to be counted."""
    # not -inf: where every draw is a hit, its gradient would be none
    counted = others.masked_fill(hits, torch.finfo(others.dtype).min / 2)
    return F.softplus(counted.logsumexp(1) - own).sum() / max(len(own), 1)
