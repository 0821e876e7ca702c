"""Recommendations for several requests at once: heads, filters, one ranking, titles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from linrec.data.dataset.past_counts import ItemCounts
from linrec.evaluation.report import LEARNED_NOTHING
from linrec.runs.filters import Allowed, Filters
from linrec.serving import ranking
from linrec.serving.heads import HeadCache
from linrec.serving.messages import Item, RecommendRequest, RecommendResponse
from linrec.serving.model import STRETCH, ServedModel
from linrec.serving.past import Indices, Past, seconds_of, with_times
from linrec.serving.ranking import Ranked, RankRequest
from linrec.serving.snapshot import Snapshot
from linrec.serving.stores import Head
from linrec.types import LinrecError


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of whoever a list is for."""

    past: Tensor | bytes | Past | None  # as in `RankRequest`
    seen: Indices
    counts: ItemCounts | None = None


NOTHING = Known(None, np.empty(0, np.int64))


def known_of(snapshot: Snapshot) -> Known:
    if not len(snapshot.seen):
        return NOTHING
    return Known(snapshot.state, snapshot.seen, snapshot.counts)


def known_of_events(model: ServedModel, past: Past) -> Known:
    """Of a history that is short enough to be encoded together with others."""
    if not len(past):
        return NOTHING
    return Known(past, np.unique(past.items), model.counts(past))


class Recommending:
    """One batch of requests to one model."""

    def __init__(self, model: ServedModel, heads: HeadCache) -> None:
        self.model, self._heads = model, heads

    def respond(
        self, requests: Sequence[RecommendRequest]
    ) -> list[RecommendResponse | Exception | None]:
        """None where a history has to be read, or a long one encoded: others do not wait for it."""
        users = [request.user for request in requests if request.user is not None]
        heads = dict(zip(users, self._heads.current(users), strict=True)) if users else {}
        known = [self._known(request, heads.get(request.user or "")) for request in requests]
        responses: list[RecommendResponse | Exception | None] = [None] * len(requests)
        rows = [row for row, each in enumerate(known) if each is not None]
        allowed: dict[int, Allowed] = {}
        for row in rows:
            try:
                allowed[row] = self._allowed(requests[row])
            except LinrecError as error:  # noqa: PERF203 - each request fails on its own
                responses[row] = error
        rows = list(allowed)
        ready = [each for each in (known[row] for row in rows) if each is not None]
        made = self._lists([requests[row] for row in rows], ready, list(allowed.values()))
        for row, response in zip(rows, made, strict=True):
            responses[row] = response
        return responses

    def ranked(
        self, requests: Sequence[RecommendRequest], known: Sequence[Known]
    ) -> list[RecommendResponse]:
        return self._lists(requests, known, [self._allowed(request) for request in requests])

    def _known(self, request: RecommendRequest, head: Head | None) -> Known | None:
        model = self.model
        if request.history is not None:
            if len(request.history) > STRETCH:
                return None
            return known_of_events(model, model.past(with_times(request.history)))
        if head is None:
            return NOTHING
        snapshot = model.read(head)
        return None if snapshot is None else known_of(snapshot)

    def _allowed(self, request: RecommendRequest) -> Allowed:
        filters = Filters(only=request.only, exclude=request.exclude, where=request.where)
        return filters.allowed(self.model.catalogue, self.model.index_of)

    def _lists(
        self,
        requests: Sequence[RecommendRequest],
        known: Sequence[Known],
        allowed: Sequence[Allowed],
    ) -> list[RecommendResponse]:
        if not requests:
            return []
        model = self.model
        lists = ranking.rank(
            [
                self._rank_request(request, each, items)
                for request, each, items in zip(requests, known, allowed, strict=True)
            ]
        )
        return [
            RecommendResponse(
                request.user,
                "cold-start" if each.past is None else "model",
                items_of(model, ranked),
                _notes(model, request, items, ranked),
            )
            for request, each, items, ranked in zip(requests, known, allowed, lists, strict=True)
        ]

    def _rank_request(
        self, request: RecommendRequest, known: Known, allowed: Allowed
    ) -> RankRequest:
        hides = self.model.seen_in(request.seen) == "hide"
        hide = known.seen if hides else NOTHING.seen
        shown = allowed.items
        if shown is not None and request.only is None and not request.where:
            # few items to exclude: an approximate search can leave them out
            hide, shown = np.concatenate([hide, self.model.indices(request.exclude)]), None
        at = seconds_of(request.at)
        return RankRequest(self.model, known.past, at, request.k, hide, shown, known.counts)


def _notes(
    model: ServedModel, request: RecommendRequest, allowed: Allowed, ranked: Ranked
) -> tuple[str, ...]:
    notes = allowed.notes if ranked else (*allowed.notes, allowed.why_nothing())
    if not model.config.loss.seen_aware or model.seen_in(request.seen) == "hide":
        return notes
    return (*notes, f"seen items are recommended too, and {LEARNED_NOTHING}")


def items_of(model: ServedModel, ranked: Ranked) -> tuple[Item, ...]:
    ids, titles = model.ids, model.titles
    return tuple(Item(ids[index - 1], titles[index - 1], score) for index, score in ranked)
