"""The best items for several users at once: one matrix product a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from linrec.data.dataset.sequences import Sequences
from linrec.scoring import HIDDEN, hide_seen, item_scores, top_k
from linrec.serving.ann import fetched
from linrec.serving.model import ServedModel
from linrec.serving.snapshot import Indices
from linrec.types import PAD

Ranked = list[tuple[int, float]]  # item indices and scores, best first


@dataclass(frozen=True, slots=True, eq=False)
class Wish:
    """What one user is to be ranked for."""

    model: ServedModel
    past: Tensor | Indices | None  # encoded, [width]; events to be encoded; None: what is popular
    k: int
    hide: Indices  # not to be shown
    only: Indices | None = None  # nothing else is to be shown


@torch.inference_mode()
def rank(wishes: Sequence[Wish]) -> list[Ranked]:
    """Wishes of one model; what an index finds too few of is ranked in full."""
    wishes = _encoded(wishes)
    found = _approximately(wishes)
    rest = [place for place, ranked in enumerate(found) if ranked is None]
    if rest:
        for place, ranked in zip(rest, _in_full([wishes[place] for place in rest]), strict=True):
            found[place] = ranked
    return [ranked or [] for ranked in found]


def _encoded(wishes: Sequence[Wish]) -> list[Wish]:
    """Histories that came as events, encoded together."""
    raw = [wish.past for wish in wishes if isinstance(wish.past, np.ndarray)]
    if not raw:
        return list(wishes)
    done = iter(wishes[0].model.encode(raw))
    return [
        replace(wish, past=next(done)) if isinstance(wish.past, np.ndarray) else wish
        for wish in wishes
    ]


def _approximately(wishes: Sequence[Wish]) -> list[Ranked | None]:
    """By the model's index if it has one; None where that cannot tell."""
    answers: list[Ranked | None] = [None] * len(wishes)
    index = wishes[0].model.index_of_vectors
    asked = [
        place
        for place, wish in enumerate(wishes)
        if index is not None and wish.past is not None and wish.only is None
    ]
    if index is None or not asked:
        return answers
    count = min(
        max(fetched(wishes[place].k, len(wishes[place].hide)) for place in asked),
        wishes[0].model.n_items,
    )
    hidden = _stacked([wishes[place] for place in asked])
    for place, items, scores in zip(asked, *index.search(hidden, count), strict=True):
        wish = wishes[place]
        shown = (items != PAD) & ~np.isin(items, wish.hide)
        if shown.sum() >= wish.k:
            best = zip(items[shown][: wish.k], scores[shown][: wish.k], strict=True)
            answers[place] = [(int(item), float(score)) for item, score in best]
    return answers


def _in_full(wishes: Sequence[Wish]) -> list[Ranked]:
    model, k = wishes[0].model, max(wish.k for wish in wishes)
    hidden = hide_seen(
        _scores(model, wishes), Sequences.of([wish.hide.astype(np.int32) for wish in wishes])
    )
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
    rows = [place for place, wish in enumerate(wishes) if wish.past is not None]
    scores = model.popularity.repeat(len(wishes), 1)
    if rows:
        encoded = _stacked([wishes[place] for place in rows])
        scores[rows] = item_scores(encoded, model.vectors, model.bias)
    return scores


def _stacked(wishes: Sequence[Wish]) -> Tensor:
    return torch.stack([wish.past for wish in wishes if isinstance(wish.past, Tensor)])


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
