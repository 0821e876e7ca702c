"""The best items for several users at once: one step and one matrix product per batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linrec.data.dataset.past_counts import ItemCounts
from linrec.data.dataset.sequences import Sequences
from linrec.scoring import HIDDEN, hide_seen, top_k
from linrec.serving.ann import fetched
from linrec.serving.model import ServedModel
from linrec.serving.past import Indices, Past
from linrec.types import PAD

Ranked = list[tuple[int, float]]  # item indices and scores, best first


@dataclass(frozen=True, slots=True, eq=False)
class RankRequest:
    """What to rank for one user."""

    model: ServedModel
    past: Tensor | bytes | Past | None  # hidden, [width]; a state; events; None: cold start
    at: float  # seconds, NaN where unknown
    k: int
    hide: Indices  # never in the result
    only: Indices | None = None  # nothing else in the result
    counts: ItemCounts | None = None  # of past items, if the model has a repeat head


@torch.inference_mode()
def rank(requests: Sequence[RankRequest]) -> list[Ranked]:
    """Requests of one model; where the index has too few items, all of them are ranked."""
    requests = _encoded(requests)
    lists = _approximately(requests)
    rest = [row for row, ranked in enumerate(lists) if ranked is None]
    if rest:
        for row, ranked in zip(rest, _in_full([requests[row] for row in rest]), strict=True):
            lists[row] = ranked
    return [ranked or [] for ranked in lists]


def _encoded(requests: Sequence[RankRequest]) -> list[RankRequest]:
    """The same with hidden vectors: states in one model call, histories in another."""
    model, encoded = requests[0].model, list(requests)
    for kind, encode in ((bytes, model.hidden), (Past, model.encode)):
        rows = [row for row, request in enumerate(requests) if isinstance(request.past, kind)]
        if rows:
            pasts: list[Any] = [requests[row].past for row in rows]
            hidden = encode(pasts, [requests[row].at for row in rows])
            for row, vector in zip(rows, hidden, strict=True):
                encoded[row] = replace(requests[row], past=vector)
    return encoded


def _approximately(requests: Sequence[RankRequest]) -> list[Ranked | None]:
    """By the model's index if it has one; None where all items have to be ranked."""
    lists: list[Ranked | None] = [None] * len(requests)
    index = requests[0].model.index_of_vectors
    chosen = [
        row
        for row, request in enumerate(requests)
        if index is not None and request.past is not None and request.only is None
    ]
    if index is None or not chosen:
        return lists
    count = min(
        max(fetched(requests[row].k, len(_not_searched(requests[row]))) for row in chosen),
        requests[0].model.n_items,
    )
    hidden = _stacked([requests[row] for row in chosen])
    may_be_shown = requests[0].model.may_be_shown
    for row, items, scores in zip(chosen, *index.search(hidden, count), strict=True):
        request = requests[row]
        hide = _not_searched(request)
        shown = (items != PAD) & ~np.isin(items, hide) & may_be_shown[items]
        if shown.sum() >= request.k:
            best = zip(items[shown][: request.k], scores[shown][: request.k], strict=True)
            found = [(int(item), float(score)) for item, score in best]
            lists[row] = _with_past(request, found)
    return lists


def _not_searched(request: RankRequest) -> Indices:
    """Items that may not be shown, and those whose score is more than a product."""
    if request.counts is None:
        return request.hide
    return np.union1d(request.hide, request.counts.items)


def _with_past(request: RankRequest, found: Ranked) -> Ranked:
    """The best of these and of the past items."""
    if request.counts is None:
        return found
    assert isinstance(request.past, Tensor)
    scores = request.model.past_scores(request.past, request.counts, request.at)
    known = zip(request.counts.items.tolist(), scores.tolist(), strict=True)
    hidden = set(request.hide.tolist())
    both = found + [(item, score) for item, score in known if item not in hidden]
    return sorted(both, key=lambda each: (-each[1], each[0]))[: request.k]


def _in_full(requests: Sequence[RankRequest]) -> list[Ranked]:
    model, k = requests[0].model, max(request.k for request in requests)
    hidden = hide_seen(
        _scores(model, requests),
        Sequences.of([request.hide.astype(np.int32) for request in requests]),
    )
    for row, request in enumerate(requests):
        if request.only is not None:
            allowed = torch.from_numpy(request.only)
            kept = hidden[row, allowed]
            hidden[row] = HIDDEN
            hidden[row, allowed] = kept
    items, best = top_k(hidden, min(k, model.n_items))
    return [
        [
            (int(i), float(s))
            for i, s in zip(some[: request.k], of[: request.k], strict=True)
            if i != PAD
        ]
        for request, some, of in zip(requests, items.tolist(), best.tolist(), strict=True)
    ]


def _scores(model: ServedModel, requests: Sequence[RankRequest]) -> Tensor:
    rows = [row for row, request in enumerate(requests) if request.past is not None]
    scores = model.popularity.repeat(len(requests), 1)
    if rows:
        encoded = _stacked([requests[row] for row in rows])
        known = [requests[row] for row in rows]
        counts, at = [each.counts for each in known], [each.at for each in known]
        found = model.scores(encoded, counts, at)
        scores = scores.to(found.dtype)
        scores[rows] = found
    return scores


def _stacked(requests: Sequence[RankRequest]) -> Tensor:
    return torch.stack([request.past for request in requests if isinstance(request.past, Tensor)])


@torch.inference_mode()
def similar(model: ServedModel, item: int, k: int) -> Ranked:
    """The items whose vectors point the same way: cosines."""
    scores = model.similarities(item)[None].clone()
    scores[:, PAD] = HIDDEN
    scores[:, item] = HIDDEN
    items, best = top_k(scores, min(k, model.n_items))
    lists = zip(items[0].tolist(), best[0].tolist(), strict=True)
    return [(int(i), float(s)) for i, s in lists if i != PAD]
