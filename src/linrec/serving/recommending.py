"""Recommendations for several requests at once: heads, filters, one ranking, titles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from linrec.data.dataset.past_counts import ItemCounts
from linrec.evaluation import Reranker
from linrec.evaluation.report import LEARNED_NOTHING
from linrec.serving import ranking
from linrec.serving.categories import within_limits
from linrec.serving.heads import HeadCache
from linrec.serving.messages import Item, RecommendRequest, RecommendResponse
from linrec.serving.model import STRETCH, ServedModel
from linrec.serving.past import Indices, Past, given_events, later_events, seconds_of
from linrec.serving.ranking import Ranked, RankRequest
from linrec.serving.rules import SharedRules, Wanted
from linrec.serving.snapshot import Snapshot
from linrec.serving.stores import Head
from linrec.types import LinrecError

MORE_OF_LIMITED = 4  # times k items are ranked where a list may have few per category


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

    def __init__(
        self, model: ServedModel, heads: HeadCache, rules: SharedRules, diversity: float = 0.0
    ) -> None:
        """diversity: of lists for requests that do not say."""
        self.model, self._heads, self._rules, self._diversity = model, heads, rules, diversity

    def respond(
        self, requests: Sequence[RecommendRequest]
    ) -> list[RecommendResponse | Exception | None]:
        """None where a history has to be read, or a long one encoded: others do not wait for it."""
        users = [request.user for request in requests if request.user is not None]
        heads = dict(zip(users, self._heads.current(users), strict=True)) if users else {}
        self._heads.catch_up(self.model, heads)
        known = [self._known(request, heads.get(request.user or "")) for request in requests]
        self._add_then(requests, heads, known)
        responses: list[RecommendResponse | Exception | None] = [None] * len(requests)
        rows = [row for row, each in enumerate(known) if each is not None]
        wanted: dict[int, Wanted] = {}
        for row in rows:
            try:
                self._reranker(requests[row])
                wanted[row] = self._rules.wanted(self.model, requests[row])
            except LinrecError as error:  # noqa: PERF203 - each request fails on its own
                responses[row] = error
        rows = list(wanted)
        ready = [each for each in (known[row] for row in rows) if each is not None]
        made = self._lists([requests[row] for row in rows], ready, list(wanted.values()))
        for row, response in zip(rows, made, strict=True):
            responses[row] = response
        return responses

    def ranked(
        self, requests: Sequence[RecommendRequest], known: Sequence[Known]
    ) -> list[RecommendResponse]:
        wanted = [self._rules.wanted(self.model, request) for request in requests]
        return self._lists(requests, known, wanted)

    def _known(self, request: RecommendRequest, head: Head | None) -> Known | None:
        model = self.model
        if request.history is not None:
            if len(request.history) > STRETCH:
                return None
            return known_of_events(model, model.past(given_events(request.history)))
        if head is None:
            return NOTHING
        snapshot = model.read(head)
        return None if snapshot is None else known_of(snapshot)

    def _add_then(
        self,
        requests: Sequence[RecommendRequest],
        heads: dict[str, Head | None],
        known: list[Known | None],
    ) -> None:
        """Events that are not kept, by one model call on copies of the states."""
        model = self.model
        rows, users = [], []
        for row, request in enumerate(requests):
            if not request.then or known[row] is None:
                continue
            if not model.streams or len(request.then) > STRETCH:
                known[row] = None  # of a whole history, or long: others do not wait for it
                continue
            head = heads.get(request.user or "")
            rows.append(row)
            users.append((None if head is None else model.read(head), self._then(request)))
        if rows:
            for row, after in zip(rows, model.advance(users), strict=True):
                known[row] = known_of(after)

    def _then(self, request: RecommendRequest) -> Past:
        return self.model.past(later_events(request.then, request.at))

    def _lists(
        self,
        requests: Sequence[RecommendRequest],
        known: Sequence[Known],
        wanted: Sequence[Wanted],
    ) -> list[RecommendResponse]:
        if not requests:
            return []
        model = self.model
        asked = [
            self._rank_request(request, each, items)
            for request, each, items in zip(requests, known, wanted, strict=True)
        ]
        lists = [
            _limited(request, ranked, items, best.k)
            for request, ranked, items, best in zip(
                asked, ranking.rank(asked), wanted, requests, strict=True
            )
        ]
        return [
            RecommendResponse(
                request.user,
                "cold-start" if each.past is None else "model",
                items_of(model, ranked),
                self._notes(request, items, ranked),
            )
            for request, each, items, ranked in zip(requests, known, wanted, lists, strict=True)
        ]

    def _rank_request(self, request: RecommendRequest, known: Known, wanted: Wanted) -> RankRequest:
        hides = self.model.seen_in(request.seen) == "hide"
        hide = known.seen if hides else NOTHING.seen
        hide = np.concatenate([hide, wanted.hide]) if len(wanted.hide) else hide
        shown = None if wanted.searched else wanted.allowed.items
        k = request.k * MORE_OF_LIMITED if wanted.limits else request.k
        at = seconds_of(request.at)
        reranker = self._reranker(request)
        return RankRequest(self.model, known.past, at, k, hide, shown, known.counts, reranker)

    def _reranker(self, request: RecommendRequest) -> Reranker | None:
        diversity = self._diversity if request.diversity is None else request.diversity
        return Reranker.of(diversity, self.model.catalogue.similarity) if diversity else None

    def _notes(self, request: RecommendRequest, wanted: Wanted, ranked: Ranked) -> tuple[str, ...]:
        allowed, reranker = wanted.allowed, self._reranker(request)
        notes = allowed.notes if ranked else (*allowed.notes, allowed.why_nothing())
        notes = (*notes, *(limit.note for limit in wanted.limits))
        if reranker is not None:
            notes = (*notes, reranker.note)
        if not self.model.config.loss.seen_aware or self.model.seen_in(request.seen) == "hide":
            return notes
        return (*notes, f"seen items are recommended too, and {LEARNED_NOTHING}")


def _limited(asked: RankRequest, ranked: Ranked, wanted: Wanted, k: int) -> Ranked:
    """At most n per category; where the first items do not suffice, more of them are ranked."""
    if not wanted.limits:
        return ranked
    chosen = within_limits(ranked, wanted.limits, k)
    while len(chosen) < k and len(ranked) == asked.k < asked.model.n_items:
        asked = replace(asked, k=min(asked.k * MORE_OF_LIMITED, asked.model.n_items))
        (ranked,) = ranking.rank([asked])
        chosen = within_limits(ranked, wanted.limits, k)
    return chosen


def items_of(model: ServedModel, ranked: Ranked) -> tuple[Item, ...]:
    ids, titles = model.ids, model.titles
    return tuple(Item(ids[index - 1], titles[index - 1], score) for index, score in ranked)
