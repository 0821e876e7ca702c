"""The ranks of an evaluation, made by a pool of workers.

They share the batches that one process would make: a score is rounded as its batch is, so the
ranks are the same wherever a batch is ranked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linrec.cluster.options import EngineOptions
from linrec.cluster.pool import Pool, open_pool
from linrec.files.remote import place

# not before the workers are started, which import torch and open the run at the same time
if TYPE_CHECKING:
    from linrec.data.dataset.sequences import IntArray
    from linrec.data.dataset.splits import Holdout
    from linrec.data.dataset.store import SequenceStore
    from linrec.evaluation.negatives import Protocol
    from linrec.evaluation.ranks import RankedBatches, Ranking, RankOptions, Scorer

TASKS = 64
"""At most; enough to keep several workers busy to the end."""


class Part(NamedTuple):
    """What is known of the users of some batches, in their order."""

    ranks: IntArray  # [targets]
    seen: NDArray[np.bool_]  # [targets]
    recommended: dict[int, IntArray]  # as in `Ranking`, of these users
    listed: dict[str, NDArray[np.float64]]  # [rows]


@dataclass(frozen=True)
class _Start:
    """Makes a worker: the model and the dataset are opened once."""

    run: Path
    data: Path | None
    options: Mapping[str, Any]

    def __call__(self) -> Callable[[slice], Part]:
        from linrec.evaluation.report import ranked_batches
        from linrec.recommender import load

        inputs = load(self.run).evaluated(self.data, **self.options)
        return partial(_ranked, ranked_batches(*inputs))


@dataclass(frozen=True)
class PoolRanker:
    """A `Ranker` for the model of a run; options are those of `Recommender.evaluate`."""

    engine: EngineOptions
    run: Path
    data: Path | None
    options: Mapping[str, Any]
    pool: Pool | None = None  # whose workers have begun; None: one is opened to rank

    @contextmanager
    def begun(self) -> Iterator[PoolRanker]:
        """The same with its workers started, which open the run while the caller does, too."""
        with open_pool(self.engine, [self.run] if self.run.exists() else []) as pool:
            pool.begin(self._start())
            yield replace(self, pool=pool)

    def _start(self) -> _Start:
        # workers may have another current folder
        data = None if self.data is None else place(self.data).resolve()
        return _Start(self.run.resolve(), data, self.options)

    def __call__(
        self,
        scorer: Scorer,
        store: SequenceStore,
        holdout: Holdout,
        protocol: Protocol,
        options: RankOptions,
    ) -> Ranking:
        if self.pool is None:
            with self.begun() as ranker:
                return ranker(scorer, store, holdout, protocol, options)
        from linrec.evaluation.ranks import RankedBatches

        assert store.path is not None, "a run without a dataset is refused before"
        self.pool.check([store.path.resolve()])
        whole = RankedBatches.of(scorer, store, holdout, protocol, options)
        count = len(whole.batches)
        ends = np.linspace(0, count, min(TASKS, count) + 1).astype(int)
        slices = [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]
        merged = _Merged(whole)
        for number, part in self.pool.run(self._start(), slices):
            merged.add(slices[number], part)
        return merged.ranking


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
        from linrec.evaluation.ranks import Ranking

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
