"""One integer per target: the rank of the held-out item in the model's ranking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linrec.data.dataset.pasts import seen_before, shared
from linrec.data.dataset.sequences import IntArray, Sequences
from linrec.data.dataset.splits import Holdout, Part
from linrec.data.dataset.store import SequenceStore
from linrec.evaluation.list_metrics import ListMeasures
from linrec.evaluation.negatives import Protocol as CandidateProtocol
from linrec.evaluation.negatives import check_protocol, load_or_draw
from linrec.evaluation.reranking import Lists, Reranker, lists_of, reranked_targets
from linrec.scoring import rank_among, rank_of_target, seen_hidden
from linrec.types import PAD

Scorer = Callable[[Sequences], Tensor]
"""Histories of B users -> their scores of all items, [B, n_items + 1]."""

Values = NDArray[np.float64]

ProgressCallback = Callable[[int, int], None]
"""Called with the number of users ranked so far and the number of all users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions:
    """How to rank, and how much memory a batch may take."""

    part: Part = "test"  # names the drawn negatives
    seed: int = 0  # draws the negatives
    hide_seen: bool = True  # full ranking only; sampled protocols never hide
    ks: tuple[int, ...] = ()  # lengths of the lists that are looked at (full ranking only)
    measures: ListMeasures | None = None  # of these lists; None: only how often items are listed
    reranker: Reranker | None = None  # of the first max(ks) items; None: by their scores
    max_scores: int = 16_000_000  # users x items per batch: 64 MB in float32
    max_tokens: int = 16_384  # users x longest history per batch
    reads: int | None = None  # newest events of a history that the scorer reads; None: all
    shares: bool = False  # whether the scorer reads histories that begin alike only once
    progress: ProgressCallback | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """The result of one pass over the users, in the order of the holdout."""

    ranks: IntArray  # [targets], 0 = best
    seen: NDArray[np.bool_]  # [targets], whether the target was in the history already
    recommended: dict[int, IntArray] = field(default_factory=dict)  # k -> times listed, [n_items+1]
    listed: dict[str, Values] = field(default_factory=dict)  # list metric -> [rows]


class Ranker(Protocol):
    """`rank_targets`, or what makes the same ranking elsewhere."""

    def __call__(
        self, scorer: Scorer, store: SequenceStore, holdout: Holdout, protocol: CandidateProtocol,
        options: RankOptions,
    ) -> Ranking: ...  # fmt: skip


def rank_targets(
    scorer: Scorer,
    store: SequenceStore,
    holdout: Holdout,
    protocol: CandidateProtocol = "full",
    options: RankOptions | None = None,
) -> Ranking:
    """Rank the held-out items of each row, batch by batch, never all users x items at once."""
    ranked = RankedBatches.of(scorer, store, holdout, protocol, options or RankOptions())
    return ranked.some(slice(None))


@dataclass(frozen=True, slots=True)
class RankedBatches:
    """All batches of a ranking, to be ranked here or some here and some there.

    A score is rounded as its batch is, so whoever shares the work shares it by batches.
    """

    scorer: Scorer
    store: SequenceStore
    holdout: Holdout
    options: RankOptions
    full: bool
    negatives: NDArray[np.int32] | None
    batches: list[IntArray]

    @classmethod
    def of(
        cls, scorer: Scorer, store: SequenceStore, holdout: Holdout, protocol: CandidateProtocol,
        options: RankOptions,
    ) -> RankedBatches:  # fmt: skip
        check_protocol(protocol)
        negatives = None
        if protocol != "full":
            part, seed = options.part, options.seed
            negatives = load_or_draw(store, holdout, protocol, part=part, seed=seed)
        batches = list(_batches(holdout.histories, store.n_items, options))
        full = protocol == "full"
        return cls(scorer, store, holdout, options, full, negatives, batches)

    def some(self, places: slice) -> Ranking:
        """With the ranks of some of the batches; what is of others means nothing."""
        count = len(self.holdout.targets)
        ranks, seen = np.empty(count, np.int64), np.empty(count, np.bool_)
        options = self.options if self.full else RankOptions()
        shown_lists = _ListCounts(self.store.n_items, len(self.holdout), options)
        done, mine = 0, self.batches[places]
        total = sum(map(len, mine))
        with torch.inference_mode():
            for rows in mine:
                self._rank(rows, ranks, seen, shown_lists)
                done += len(rows)
                if self.options.progress is not None:
                    self.options.progress(done, total)
        return Ranking(ranks, seen, shown_lists.recommended, shown_lists.listed)

    def _rank(
        self, rows: IntArray, ranks: IntArray, seen: NDArray[np.bool_], shown_lists: _ListCounts
    ) -> None:
        histories = self.holdout.histories.take(rows)
        index, row = self.holdout.targets_of(rows)
        targets = self.holdout.targets[index]
        seen[index] = seen_before(histories, targets, row)
        scores = _scored(self.scorer, histories, self.store.n_items)
        hide = self.full and self.options.hide_seen
        with seen_hidden(scores, histories) if hide else nullcontext(scores) as shown:
            drawn = None if self.negatives is None else self.negatives[index]
            found = _ranks(shown, targets, drawn, None if len(row) == len(rows) else row)
            lists = shown_lists.add(shown, rows, histories)
            if lists is not None and self.options.reranker is not None:
                own = shown[torch.from_numpy(row), torch.from_numpy(targets)].cpu().numpy()
                found = reranked_targets(found, targets, row, own, lists)
            ranks[index] = found


def batches(lengths: IntArray, n_items: int, options: RankOptions) -> Iterator[IntArray]:
    """Rows of similar length, as many per batch as the limits allow, but at least one.

    The longest come first, so that too little memory shows at once.
    """
    read = np.maximum(lengths if options.reads is None else np.minimum(lengths, options.reads), 1)
    order = np.argsort(-read, kind="stable").astype(np.int64)
    max_rows = max(1, options.max_scores // (n_items + 1))
    start = 0
    while start < len(order):
        count = min(max_rows, max(1, options.max_tokens // int(read[order[start]])))
        yield order[start : start + count]
        start += count


def _batches(histories: Sequences, n_items: int, options: RankOptions) -> Iterator[IntArray]:
    longest, of = shared(histories)
    if not options.shares or len(longest) == len(histories):
        yield from batches(histories.lengths, n_items, options)
        return
    # rows that begin alike together, and as many of them as the scores allow
    order = np.lexsort((histories.ends, histories.starts, -longest.lengths[of]))
    count = np.cumsum(np.diff(of[order], prepend=-1) != 0)
    max_rows = max(1, options.max_scores // (n_items + 1))
    start = 0
    while start < len(order):
        fitting = max(1, options.max_tokens // max(int(longest.lengths[of[order[start]]]), 1))
        stop = int(np.searchsorted(count, count[start] + fitting))
        stop = min(stop, start + max_rows)
        yield order[start:stop]
        start = stop


def _scored(scorer: Scorer, histories: Sequences, n_items: int) -> Tensor:
    scores = scorer(histories)
    if scores.shape != (len(histories), n_items + 1):
        raise ValueError(
            f"the scorer gave scores of shape {list(scores.shape)} for {len(histories)} histories "
            f"and {n_items} items; it must give [{len(histories)}, {n_items + 1}]"
        )
    return scores


def _ranks(
    scores: Tensor,
    targets: IntArray,
    negatives: NDArray[np.int32] | None,
    rows: IntArray | None,
) -> IntArray:
    """rows: [targets], None if each row has one target."""
    target = torch.from_numpy(targets).to(scores.device)
    of = None if rows is None else torch.from_numpy(rows).to(scores.device)
    if negatives is None:
        ranks = rank_of_target(scores, target, of)
    else:
        ranks = rank_among(scores, target, torch.from_numpy(negatives).to(scores.device), of)
    return np.asarray(ranks.cpu().numpy(), dtype=np.int64)


class _ListCounts:
    """What is shown, batch by batch: how often each item, and the metrics of the lists."""

    def __init__(self, n_items: int, n_rows: int, options: RankOptions) -> None:
        self._options, self._n_rows = options, n_rows
        self.recommended = {k: np.zeros(n_items + 1, np.int64) for k in options.ks}
        self.listed: dict[str, Values] = {}

    def add(self, scores: Tensor, rows: IntArray, histories: Sequences) -> Lists | None:
        """The lists of these rows; None if none are looked at."""
        if not self.recommended:
            return None
        lists = lists_of(scores, max(self.recommended), self._options.reranker)
        for k in self.recommended:
            self.recommended[k] += np.bincount(
                lists.items[:, :k].ravel(), minlength=scores.shape[1]
            )
            self.recommended[k][PAD] = 0  # fills up lists with too few items
        if self._options.measures is not None:
            found = self._options.measures.of_rows(lists.items, self.recommended, histories)
            for name, values in found.items():
                self.listed.setdefault(name, np.zeros(self._n_rows))[rows] = values
        return lists
