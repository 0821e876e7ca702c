"""Cross-entropy over the target and a sample of the catalogue, corrected for how it was drawn.

A draw k stands for 1 / (K q_k) items, K draws with probability q; so its score is lowered by
log(K q_k) (the logQ correction of Bengio & Senecal 2008 and Yi et al. 2019). The target is always
there and stands for itself alone: nothing is taken off its score, and a draw that hits it, or hits
an item that was seen and will not be shown, is left out. Then the sum that the target's share is
taken of is, on average, the sum over all items that compete with it. Yi et al. correct the target
too, because theirs is one of the draws. With a repeat head the items of a user's past count one by
one, not by draws.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.losses.config import SampledSoftmaxConfig
from linrec.losses.items import ItemVectors
from linrec.losses.loss import Loss
from linrec.losses.repeats import Repeats, past_scores
from linrec.losses.sampling import IntArray, Sampler, own_score
from linrec.losses.seen_draws import seen_among
from linrec.losses.weighing import relative
from linrec.types import SeenItems


class SampledSoftmax(Loss):
    """All targets of a step share its draws."""

    Config: ClassVar[type[SampledSoftmaxConfig]] = SampledSoftmaxConfig

    def __init__(self, config: SampledSoftmaxConfig, counts: IntArray) -> None:
        super().__init__(config, counts)
        self.negatives = config.negatives
        self.sampler = Sampler(counts, config.sampling_power)

    def __call__(
        self,
        hidden: Tensor,
        targets: Tensor,
        items: ItemVectors,
        seen: SeenItems | None = None,
        repeats: Repeats | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        count = len(targets)
        drawn = self.sampler.draw(self.negatives, device=targets.device)
        vectors, bias = items.of(torch.cat([targets, drawn]))
        expected = self.sampler.log_probability(drawn) + math.log(self.negatives)
        offset = -expected if bias is None else bias[count:] - expected
        with torch.autocast(hidden.device.type, enabled=False):
            own = own_score(hidden, vectors[:count], None if bias is None else bias[:count])
            others = torch.addmm(offset.to(hidden.dtype), hidden, vectors[count:].T)
        hits = drawn == targets[:, None]
        if seen is not None:
            hits |= seen_among(seen, drawn[None], together=max(count, 1))
        if repeats is None:
            return sampled_softmax(own, others, hits, weights=weights)
        past = list(past_scores(hidden, targets, items, repeats, drawn))
        hits |= torch.cat([hits[:0], *(part.drawn for part in past)])
        own = own + torch.cat([own[:0], *(part.own for part in past)])
        of_past = [_whole(part.scores, ~part.others) for part in past]
        return sampled_softmax(own, others, hits, torch.cat([own[:0], *of_past]), weights)


def sampled_softmax(
    own: Tensor,
    others: Tensor,
    hits: Tensor,
    of_past: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """own: [T], the targets' scores; others: [T, K], corrected; hits: [T, K], not to be counted.

    of_past: [T], the logarithm of the sum over the past items, which count one by one. weights:
    [T], how much each target counts.
    """
    whole = _whole(others, hits)
    if of_past is not None:
        whole = torch.logaddexp(whole, of_past)
    losses = F.softplus(whole - own)
    if weights is not None:
        losses = losses * relative(weights.to(losses.dtype))
    return losses.sum() / max(len(own), 1)


def _whole(scores: Tensor, left_out: Tensor) -> Tensor:
    """The logarithm of the sum of exponentials, [T]."""
    # not -inf: where everything is left out, its gradient would be none
    lowest = torch.finfo(scores.dtype).min / 2
    if not scores.shape[1]:
        return scores.new_full((len(scores),), lowest)
    return scores.masked_fill(left_out, lowest).logsumexp(1)
