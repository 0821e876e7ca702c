"""One history from each of its positions: a causal model encodes all of them in one pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from linrec.backbones.backbone import Backbone
from linrec.data.dataset.pasts import shared
from linrec.data.dataset.sequences import IntArray, Sequences


def one_pass(model: Backbone) -> bool:
    """Whether the hidden vector at a position is the one that the history up to there has.

    A model that reads both ways has others, and one with a max_length drops the oldest events.
    """
    return model.config.causal and model.config.max_length is None


@torch.no_grad()
def encode_prefixes(model: Backbone, histories: Sequences) -> Tensor:
    """`Backbone.encode`, where rows that begin at the same event are read once: [rows, width]."""
    longest, of = shared(histories)
    if len(longest) == len(histories) or not one_pass(model) or not histories.lengths.all():
        return model.encode(histories)
    longest = _with_requests(longest, histories, of)
    if model.config.time_gaps and not _closed_by_the_next(histories, longest, of):
        return model.encode(histories)
    hidden: Tensor = model(*model.read(longest).to(model.device))
    rows, last = (torch.from_numpy(x).to(model.device) for x in (of, histories.lengths - 1))
    return hidden[rows, last]


def _with_requests(longest: Sequences, histories: Sequences, of: IntArray) -> Sequences:
    """The longest rows, each open until the request of the row that is the longest."""
    until = np.full(len(longest), np.nan)
    whole = histories.ends == longest.ends[of]
    until[of[whole]] = histories.until_or_unknown()[whole]
    return replace(longest, until=until)


def _closed_by_the_next(histories: Sequences, longest: Sequences, of: IntArray) -> bool:
    """Whether the request of each row is made when its next event comes, as one pass reads it."""
    if histories.times is None:
        return True
    requests, inner = histories.until_or_unknown(), histories.ends < longest.ends[of]
    following = np.where(
        inner, histories.times[histories.ends * inner], longest.until_or_unknown()[of]
    )
    unknown = np.isnan(requests) & np.isnan(following)
    return bool(((requests == following) | unknown).all())
