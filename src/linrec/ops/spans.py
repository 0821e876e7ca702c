"""How many events the heads of linrec-decay remember when training begins."""

from __future__ import annotations

import torch
from torch import Tensor

# in events: the shortest sees the last event or two, the longest is nearly the paper's mechanism
# on whole histories
SHORTEST_SPAN, LONGEST_SPAN = 2.0, 2048.0


def initial_decay_logits(heads: int) -> Tensor:
    """logit of g = exp(-1 / span), spans spread evenly on a log scale.

    Examples:
        >>> [round(g, 3) for g in ops.initial_decay_logits(3).sigmoid().tolist()]
        [0.607, 0.984, 1.0]
    """
    middle = (SHORTEST_SPAN * LONGEST_SPAN) ** 0.5
    with torch.device("cpu"):  # also for a model without memory, see linrec.runs.weights
        spans = (
            torch.tensor([middle])
            if heads == 1
            else torch.logspace(
                torch.tensor(SHORTEST_SPAN).log10().item(),
                torch.tensor(LONGEST_SPAN).log10().item(),
                heads,
            )
        )
        logits = torch.logit(torch.exp(-1.0 / spans))
    return logits.to(torch.get_default_device())
