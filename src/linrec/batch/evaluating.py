"""The ranks of an evaluation, made by a pool of workers.

They share the batches that one process would make: a score is rounded as its batch is, so the
ranks are the same wherever a batch is ranked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrec.cluster.options import EngineOptions
from linrec.cluster.pool import open_pool
from linrec.data.dataset.sequences import IntArray
from linrec.data.dataset.splits import Holdout
from linrec.data.dataset.store import SequenceStore
from linrec.evaluation.negatives import Protocol
from linrec.evaluation.ranks import RankedBatches, Ranking, RankOptions, Scorer
from linrec.evaluation.report import ranked_batches
from linrec.recommender import load

TASKS = 64
"""At most; enough to keep several workers busy to the end."""


class Part(NamedTuple):
    """What is known of the users of some batches, in their order."""

    ranks: IntArray  # [targets]
    seen: NDArray[np.bool_]  # [targets]
    recommended: dict[int, IntArray]  # as in `Ranking`, of these users
    listed: dict[str, NDArray[np.float64]]  # [rows]


@dataclass(frozen=True)
class PoolRanker:
    """A `Ranker` for the model of a run; options are those of `Recommender.evaluate`."""

    engine: EngineOptions
    run: Path
    data: Path | None
    options: Mapping[str, Any]

    def __call__(
        self,
        scorer: Scorer,
        store: SequenceStore,
        holdout: Holdout,
        protocol: Protocol,
        options: RankOptions,
    ) -> Ranking:
        whole = RankedBatches.of(scorer, store, holdout, protocol, options)
        assert store.path is not None, "a run without a dataset is refused before"
        # workers may have another current folder
        there = replace(self, run=self.run.resolve(), data=store.path.resolve())
        count = len(whole.batches)
        ends = np.linspace(0, count, min(TASKS, count) + 1).astype(int)
        slices = [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]
        merged = _Merged(whole)
        with open_pool(self.engine, [there.run, store.path]) as pool:
            for place, part in pool.run(there.start, slices):
                merged.add(slices[place], part)
        return merged.ranking

    def start(self) -> Callable[[slice], Part]:
        """A worker: the model and the dataset are opened once."""
        inputs = load(self.run).evaluated(self.data, **self.options)
        return partial(_ranked, ranked_batches(*inputs))


def _ranked(whole: RankedBatches, places: slice) -> Part:
    ranking = whole.some(places)
    rows, index = _of(whole, places)
    listed = {name: values[rows] for name, values in ranking.listed.items()}
    return Part(ranking.ranks[index], ranking.seen[index], ranking.recommended, listed)


def _of(whole: RankedBatches, places: slice) -> tuple[IntArray, IntArray]:
    """The rows of some batches, and the positions of their targets."""
    rows = np.concatenate(whole.batches[places])
    return rows, whole.holdout.targets_of(rows)[0]


class _Merged:
    """The parts, put together."""

    def __init__(self, whole: RankedBatches) -> None:
        count = len(whole.holdout.targets)
        self.whole, self.done = whole, 0
        self.ranking = Ranking(np.empty(count, np.int64), np.empty(count, np.bool_))

    def add(self, places: slice, part: Part) -> None:
        rows, index = _of(self.whole, places)
        ranking, total = self.ranking, len(self.whole.holdout)
        ranking.ranks[index], ranking.seen[index] = part.ranks, part.seen
        for k, counts in part.recommended.items():
            ranking.recommended[k] = ranking.recommended.get(k, 0) + counts
        for name, values in part.listed.items():
            ranking.listed.setdefault(name, np.zeros(total))[rows] = values
        self.done += len(rows)
        if self.whole.options.progress is not None:
            self.whole.options.progress(self.done, total)
