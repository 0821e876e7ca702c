"""The best items for several users at once: one matrix product a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from linrec.data.sequences import Sequences
from linrec.scoring import HIDDEN, hide_seen, item_scores, top_k
from linrec.serving.model import ServedModel
from linrec.serving.snapshot import Indices
from linrec.types import PAD

Ranked = list[tuple[int, float]]  # item indices and scores, best first


@dataclass(frozen=True, slots=True, eq=False)
class Wish:
    """What one user is to be ranked for."""

    model: ServedModel
    hidden: Tensor | None  # [width]; None: what is popular
    k: int
    hide: Indices  # not to be shown
    only: Indices | None = None  # nothing else is to be shown


@torch.inference_mode()
def rank(wishes: Sequence[Wish]) -> list[Ranked]:
    """Wishes of one model."""
    model, k = wishes[0].model, max(wish.k for wish in wishes)
    scores = _scores(model, wishes)
    hidden = hide_seen(scores, Sequences.of([wish.hide.astype(np.int32) for wish in wishes]))
    for row, wish in enumerate(wishes):
        if wish.only is not None:
            allowed = torch.from_numpy(wish.only)
            kept = hidden[row, allowed]
            hidden[row] = HIDDEN
            hidden[row, allowed] = kept
    items, best = top_k(hidden, min(k, model.n_items))
    return [
        [(int(i), float(s)) for i, s in zip(some[: wish.k], of[: wish.k], strict=True) if i != PAD]
        for wish, some, of in zip(wishes, items.tolist(), best.tolist(), strict=True)
    ]


def _scores(model: ServedModel, wishes: Sequence[Wish]) -> Tensor:
    rows = [place for place, wish in enumerate(wishes) if wish.hidden is not None]
    scores = model.popularity.repeat(len(wishes), 1)
    if rows:
        encoded = torch.stack([h for wish in wishes if (h := wish.hidden) is not None])
        scores[rows] = item_scores(encoded, model.vectors, model.bias)
    return scores


@torch.inference_mode()
def similar(model: ServedModel, item: int, k: int) -> Ranked:
    """The items whose vectors point the same way: cosines."""
    unit = torch.nn.functional.normalize(model.vectors, dim=1)
    scores = (unit @ unit[item])[None]
    scores[:, PAD] = HIDDEN
    scores[:, item] = HIDDEN
    items, best = top_k(scores, min(k, model.n_items))
    found = zip(items[0].tolist(), best[0].tolist(), strict=True)
    return [(int(i), float(s)) for i, s in found if i != PAD]
