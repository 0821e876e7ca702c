"""The best items for several users at once: one step and one matrix product per batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrec.data.dataset.past_counts import ItemCounts
from linrec.data.dataset.sequences import Sequences
from linrec.evaluation.reranking import Reranker, pool_size
from linrec.ops import compiled
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
    shown: NDArray[np.bool_] | None = None  # [n_items + 1]: nothing else in the result
    counts: ItemCounts | None = None  # of past items, if the model has a repeat head
    reranker: Reranker | None = None  # None: by the scores alone


@torch.inference_mode()
def rank(requests: Sequence[RankRequest]) -> list[Ranked]:
    """Requests of one model; where the index has too few items, all of them are ranked."""
    pools = [each if each.reranker is None else _with_pool(each) for each in requests]
    ranked = zip(requests, _by_scores(pools), strict=True)
    return [pool if each.reranker is None else _reranked(each, pool) for each, pool in ranked]


def _with_pool(request: RankRequest) -> RankRequest:
    return replace(request, k=pool_size(request.k))


def _reranked(request: RankRequest, pool: Ranked) -> Ranked:
    if request.reranker is None or not pool:
        return pool
    items, scores = np.array([[i for i, _ in pool]]), np.array([[score for _, score in pool]])
    chosen = request.reranker.choose(items, scores, min(request.k, len(pool)))[0]
    return [pool[place] for place in chosen]


def _by_scores(requests: Sequence[RankRequest]) -> list[Ranked]:
    if requests[0].model.index_of_vectors is None:
        return _in_full(requests)
    requests = _encoded(requests)
    lists = _approximately(requests)
    rest = [row for row, ranked in enumerate(lists) if ranked is None]
    if rest:
        for row, ranked in zip(rest, _in_full([requests[row] for row in rest]), strict=True):
            lists[row] = ranked
    return [ranked or [] for ranked in lists]


def _hidden(requests: Sequence[RankRequest]) -> Tensor:
    """Of requests with a past: [requests, width]."""
    if not all(isinstance(request.past, bytes) for request in requests):
        return _stacked(_encoded(requests))
    states: list[Any] = [request.past for request in requests]  # as nearly always
    return requests[0].model.hidden(states, [request.at for request in requests])


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
        if index is not None and request.past is not None and request.shown is None
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
    model = requests[0].model
    k = [min(request.k, model.n_items) for request in requests]
    scores = _scores(model, requests)
    if compiled.chooses():
        hide, masks = [each.hide for each in requests], [each.shown for each in requests]
        items, best = compiled.choose(scores.numpy(), hide, masks, k)
    else:
        items, best = _chosen(scores, requests, max(k))
    return [
        [pair for pair in zip(some[:count], of[:count], strict=True) if pair[0] != PAD]
        for some, of, count in zip(items.tolist(), best.tolist(), k, strict=True)
    ]


def _chosen(scores: Tensor, requests: Sequence[RankRequest], k: int) -> tuple[Any, Any]:
    """What `compiled.choose` does, in torch."""
    hide = Sequences.of([request.hide.astype(np.int32) for request in requests])
    hidden = hide_seen(scores, hide)
    for row, request in enumerate(requests):
        if request.shown is not None:
            hidden[row].masked_fill_(~torch.from_numpy(request.shown), HIDDEN)
    return top_k(hidden, k)


def _scores(model: ServedModel, requests: Sequence[RankRequest]) -> Tensor:
    """Fresh ones, which may be changed: [requests, n_items + 1]."""
    known = [request for request in requests if request.past is not None]
    if known:
        counts, at = [each.counts for each in known], [each.at for each in known]
        found = model.scores(_hidden(known), counts, at).float()
        if len(known) == len(requests):
            return found if model.vectors is not None else found.clone()
    scores = model.popularity.repeat(len(requests), 1)
    if known:
        scores[[row for row, request in enumerate(requests) if request.past is not None]] = found
    return scores


def _stacked(requests: Sequence[RankRequest]) -> Tensor:
    return torch.stack([request.past for request in requests if isinstance(request.past, Tensor)])


@torch.inference_mode()
def similar(model: ServedModel, item: int, k: int, hide: Indices) -> Ranked:
    """The items whose vectors point the same way: cosines."""
    scores = model.similarities(item)[None].clone()
    scores[:, PAD] = HIDDEN
    scores[:, item] = HIDDEN
    scores[:, torch.from_numpy(hide)] = HIDDEN
    items, best = top_k(scores, min(k, model.n_items))
    lists = zip(items[0].tolist(), best[0].tolist(), strict=True)
    return [(int(i), float(s)) for i, s in lists if i != PAD]
