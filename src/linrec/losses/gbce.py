"""Generalised binary cross-entropy (gSASRec: Petrov & Macdonald, RecSys 2023).

With few of many items as negatives, binary cross-entropy makes a model overconfident: it hardly
ever sees a wrong item. Raising the target's probability to a power beta below one takes that back.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from linrec.losses.config import GBCEConfig
from linrec.losses.items import ItemVectors
from linrec.losses.loss import Loss
from linrec.losses.repeats import Repeats, past_scores
from linrec.losses.sampling import IntArray, Sampler, own_score
from linrec.losses.seen_draws import seen_among
from linrec.losses.weighing import relative
from linrec.types import SeenItems

# targets that share their draws: then their scores are one product instead of one gathered row per
# draw, which would cost more than a catalogue of thousands does; yet a step meets many items
GROUP = 32


class GBCE(Loss):
    """Negatives are drawn from all items alike, as the calibration assumes."""

    Config: ClassVar[type[GBCEConfig]] = GBCEConfig

    def __init__(self, config: GBCEConfig, counts: IntArray) -> None:
        super().__init__(config, counts)
        # there are no more, and a target would be outweighed by the same items over and over
        self.negatives = min(config.negatives, max(self.n_items - 1, 1))
        self.sampler = Sampler(counts, power=0.0)
        self.beta = target_power(self.negatives, self.n_items, config.calibration)

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
        drawn, before = self._draws(count, targets.device)
        vectors, bias = items.of(torch.cat([targets, drawn.flatten()]))
        after = len(drawn) * GROUP - count - before
        grouped = F.pad(hidden, (0, 0, before, after)).view(len(drawn), GROUP, hidden.shape[1])
        with torch.autocast(hidden.device.type, enabled=False):
            own = own_score(hidden, vectors[:count], None if bias is None else bias[:count])
            others = (
                grouped @ vectors[count:].view(*drawn.shape, hidden.shape[1]).mT
            )  # [groups, GROUP, K]
        if bias is not None:
            others = others + bias[count:].view(len(drawn), 1, self.negatives)
        hits = drawn[:, None] == F.pad(targets, (before, after)).view(len(drawn), GROUP, 1)
        own_rows = slice(before, before + count)
        hits = hits.flatten(0, 1)[own_rows]
        if seen is not None:
            hits |= seen_among(seen, drawn, together=GROUP, before=before)
        others = others.flatten(0, 1)[own_rows]
        if repeats is None:
            return gbce(own, others, hits, self.beta, weights=weights)
        if repeats.past.seen is not None:
            hits |= seen_among(repeats.past.seen, drawn, together=GROUP, before=before)
        past = list(past_scores(hidden, targets, items, repeats))
        own = own + torch.cat([own[:0], *(part.own for part in past)])
        # each past item as often as it would be drawn on average
        wrong = torch.cat([own[:0], *((F.softplus(p.scores) * p.others).sum(1) for p in past)])
        of_past = wrong * self.negatives / self.n_items
        return gbce(own, others, hits, self.beta, of_past, weights)

    def _draws(self, count: int, device: torch.device) -> tuple[Tensor, int]:
        """[groups, K] for the given targets, and how many of the first group are not among them."""
        first, total = (0, count) if self.part is None else self.part[1:3]
        drawn = self.sampler.draw(-(-total // GROUP), self.negatives, device=device)
        return drawn[first // GROUP : -(-(first + count) // GROUP)], first % GROUP


def gbce(
    own: Tensor,
    others: Tensor,
    hits: Tensor,
    beta: float,
    of_past: Tensor | float = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """own: [T], the targets' scores; others, hits: [T, K], scores and what not to count.

    beta 1 is binary cross-entropy. of_past: [T], what past items add, which are not drawn.
    weights: [T], how much each target counts.
    """
    wrong = F.softplus(others).masked_fill(hits, 0.0).sum(1) + of_past  # -log(1 - sigmoid)
    right = beta * F.softplus(-own)  # -log(sigmoid ** beta)
    losses = right + wrong
    if weights is not None:
        losses = losses * relative(weights.to(losses.dtype))
    return losses.sum() / max(len(own), 1) / (others.shape[1] + 1)


def target_power(negatives: int, n_items: int, calibration: float) -> float:
    """beta of the paper, from its t: 0 leaves scores overconfident, 1 makes them probabilities."""
    rate = negatives / max(n_items - 1, 1)
    return rate * (calibration * (1 - 1 / rate) + 1 / rate)
