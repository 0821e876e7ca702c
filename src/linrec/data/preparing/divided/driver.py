"""`prepare` as tasks of a pool: what is decided between them, and the dataset in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from linrec.cluster.options import EngineOptions
from linrec.cluster.pool import Pool, open_pool
from linrec.data.dataset.store import SequenceStore
from linrec.data.dataset.summary import Steps, TimesKind, kind_of
from linrec.data.preparing.divided.chunks import (
    FETCHED,
    ChunkRead,
    Divide,
    Fetch,
    LogFile,
    ReadChunk,
)
from linrec.data.preparing.divided.context import ColumnPlan, plan_columns
from linrec.data.preparing.divided.core import Core
from linrec.data.preparing.divided.finish import Finished, finish
from linrec.data.preparing.divided.histories import Range, SortRange
from linrec.data.preparing.divided.job import Job, Step, start
from linrec.data.preparing.divided.numbering import MergeBucket, Numbered, Starts, number
from linrec.data.preparing.divided.scatter import Plan, Scatter, Scattered
from linrec.data.preparing.divided.scratch import remove
from linrec.data.preparing.divided.times import number_rows
from linrec.data.preparing.facts import check_order, given_times_kind
from linrec.data.preparing.filtering import (
    Filter,
    Removed,
    history_filters,
    note_removed,
    row_filters,
)
from linrec.data.preparing.options import PrepareOptions
from linrec.data.reading import chunks as reading_chunks
from linrec.data.reading.bad_rows import SkippedRows
from linrec.data.reading.chunks import Rows
from linrec.data.reading.events import (
    Chosen,
    Files,
    ReadInfo,
    check_rows,
    choose,
    precision_note,
    times_of,
    unit_note,
)
from linrec.data.reading.times import name_of, scaled, together, unit_by
from linrec.files.atomic import FolderDraft
from linrec.files.copies import outgoing
from linrec.files.remote import Address
from linrec.types import InputError

Progress = Callable[[str, int, int], None]
"""Called with the name of a stage, the number of its tasks that are done, and of all."""


MAX_BUCKETS = 4096
TEXT_ROW_BYTES = 10


@dataclass(frozen=True)
class Sizes:
    """How much a task holds; the dataset does not depend on it."""

    chunk_rows: int = 1 << 20
    bucket_rows: int = 4_000_000  # of the log for each bucket of ids
    range_events: int = 8_000_000
    ranges_per_worker: int = 2


def prepare_divided(
    files: Files,
    out: Path,
    options: PrepareOptions,
    engine: EngineOptions,
    *,
    overwrite: bool = False,
    shard_events: int | None = None,
    sizes: Sizes | None = None,
    progress: Progress | None = None,
) -> SequenceStore:
    """The dataset that `prepare` makes of the same files, made by the workers of an engine."""
    # what is sent to storage is made on a file system first
    beside = outgoing(out) if isinstance(out, Address) else out
    scratch = FolderDraft(beside, overwrite=overwrite)
    try:
        folder = scratch.folder.resolve()
        seen = [folder, *(path.resolve() for path in files.paths[:100])]
        with ThreadPoolExecutor(1) as thread, open_pool(engine, seen) as pool:
            pool.begin(start)
            run = _Run(files, options, pool, sizes or Sizes(), progress)
            finished = run.events(folder)
            made = finish(finished, run.tasks, out, overwrite=overwrite, shard_events=shard_events)
            thread.submit(scratch.discard)  # while the workers end
        return made
    finally:
        scratch.discard()


@dataclass
class _Run:
    """One `prepare`, from the files to sorted events."""

    files: Files
    options: PrepareOptions
    pool: Pool
    sizes: Sizes
    progress: Progress | None
    job: Job | None = None

    def tasks(self, stage: str, tasks: Sequence[Any]) -> list[Any]:
        """The results in the order of the tasks."""
        assert self.job is not None
        found: list[Any] = [None] * len(tasks)
        steps = [Step(self.job, task) for task in tasks]
        for done, (place, result) in enumerate(self.pool.run(start, steps), start=1):
            found[place] = result
            if self.progress is not None:
                self.progress(stage, done, len(tasks))
        return found

    def events(self, folder: Path) -> Finished:
        files = self._fetch(folder)
        chosen, first = self._open(files[0])
        reading = self._divide(files)
        assert self.job is not None
        read: list[ChunkRead] = self.tasks("reading", reading)
        remove(folder / FETCHED)
        starts = Starts(np.cumsum([0, *(each.rows for each in read)]).astype(np.int64))
        info, unit = self._info(chosen, first, read)
        order = self._times_kind(info, read, unit)
        columns = plan_columns(self.job, [e.context for e in read], chosen.declared, info.source)
        numbered = self._number(read, starts)
        removed: dict[str, int] = {}
        ranges, scattered = self._scatter(numbered, starts, (info.source, unit, columns), removed)
        self._sort(ranges, scattered, len(numbered["item"].order), removed)
        core = Core.of(self.job, ranges, len(numbered["item"].order))
        core.repeat(partial(self.tasks, "filtering"), removed)
        return Finished(
            self.job, self.options, info, columns, numbered, ranges, core, removed, order
        )

    def _fetch(self, folder: Path) -> list[LogFile]:
        """Where every file can be opened by all workers; copies of what is in storage."""
        self.job = Job(folder, _for_workers(self.options), self.files.form.name, {}, 1)
        there = folder / FETCHED
        files = [
            LogFile(path, there / f"{n:06d}" / path.name)
            if isinstance(path, Address)
            else LogFile(path, path.resolve())
            for n, path in enumerate(self.files.paths)
        ]
        self.tasks("fetching", [Fetch(file) for file in files if isinstance(file.name, Address)])
        return files

    def _open(self, first: LogFile) -> tuple[Chosen, tuple[str, ...]]:
        """The columns, and what is to be said of the first file."""
        options = self.options.reading
        assert self.job is not None
        table = first.open(self.job, options)
        chosen = choose(table, options)
        self.job = replace(self.job, columns=chosen.all)
        time = chosen.columns.get("time")
        return chosen, () if time is None else precision_note(table, time)

    def _divide(self, files: list[LogFile]) -> list[ReadChunk]:
        # where rows are left out, what is said of them follows the usual division
        usual = reading_chunks.CHUNK_ROWS
        rows = usual if self.options.skip_bad_rows else min(self.sizes.chunk_rows, usual)
        found = self.tasks("opening", [Divide(file, rows) for file in files])
        stretches = [(file, each) for file, some in zip(files, found, strict=True) for each in some]
        buckets = -(-sum(_rows(*each) for each in stretches) // self.sizes.bucket_rows)
        assert self.job is not None
        self.job = replace(self.job, buckets=min(max(buckets, 1), MAX_BUCKETS))
        return [ReadChunk(n, *each) for n, each in enumerate(stretches)]

    def _info(
        self, chosen: Chosen, first: tuple[str, ...], read: Sequence[ChunkRead]
    ) -> tuple[ReadInfo, str | None]:
        """How the log was read, and the unit of its times."""
        skipped = SkippedRows()
        for each in read:
            skipped.update(each.skipped)
        rows, source = sum(each.rows for each in read), self.files.name
        check_rows(source, rows, skipped)
        if len({each.probe for each in read}) > 1:
            raise InputError(
                "the machines of the cluster have versions of polars that differ; install the same"
            )
        notes: tuple[str, ...] = ()
        look, unit = together(each.look for each in read), None
        if look is not None and self.options.time_unit is None and self.options.time_format is None:
            column = chosen.columns["time"]
            unit = unit_by(look, times_of(source, column))
            if unit is not None:
                ends = scaled(np.array([look.first, look.last]), unit)
                notes = (unit_note(column, name_of(unit), float(ends[0]), float(ends[1])),)
        notes = (*notes, *first)
        if skipped.total:
            notes = (*notes, skipped.note(rows))
        beside = self.files.form.items_beside(self.files.paths[0])
        info = ReadInfo(
            source=source, format=self.files.form.name, columns=chosen.columns,
            guessed=chosen.guessed, items_beside=beside, rows=rows, notes=notes, skipped=skipped,
        )  # fmt: skip
        check_order(info, self.options)
        return info, unit

    def _times_kind(
        self, info: ReadInfo, read: Sequence[ChunkRead], unit: str | None
    ) -> Callable[[Steps | None], TimesKind]:
        """What the times are, as far as it can be known before they are sorted."""
        given = given_times_kind(info, self.options)
        if given is not None:
            return _Known(given)
        looks = [each.look for each in read]
        numbers = number_rows(partial(self.tasks, "times"), looks, unit, info.rows)
        return _Guess(numbers)

    def _number(self, read: Sequence[ChunkRead], starts: Starts) -> dict[str, Numbered]:
        assert self.job is not None
        job = self.job
        tasks = [
            MergeBucket(role, place, kind, starts)
            for role, kind in ((role, _id_kind(role, read)) for role in job.id_roles)
            for place in range(job.buckets)
        ]
        found: list[int] = self.tasks("numbering ids", tasks)
        parts = [found[n * job.buckets : (n + 1) * job.buckets] for n in range(len(job.id_roles))]
        with ThreadPoolExecutor() as threads:  # the workers wait for all of them
            every = threads.map(partial(number, job), job.id_roles, parts)
            return {each.role: each for each in every}

    def _scatter(
        self,
        numbered: dict[str, Numbered],
        starts: Starts,
        decided: tuple[str, str | None, list[ColumnPlan]],
        removed: dict[str, int],
    ) -> tuple[list[Range], NDArray[np.int64]]:
        """The ranges, and how many events each chunk has in each."""
        assert self.job is not None
        source, unit, columns = decided
        bounds = self._bounds(numbered["user"].rows)
        buckets = {role: each.starts for role, each in numbered.items()}
        plan = Plan(source, starts, buckets, bounds, unit, columns)
        tasks = [Scatter(place, plan) for place in range(starts.chunks)]
        found: list[Scattered] = self.tasks("dividing", tasks)
        _note(row_filters(self.options), [each.passed for each in found], removed)
        remove(self.job.folder / "chunks")
        pairs = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ranges = [Range(place, *pair) for place, pair in enumerate(pairs)]
        return ranges, np.stack([each.ranges for each in found])

    def _bounds(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ranges of users with about as many rows; rows: of each user."""
        ends = np.cumsum(rows)
        total = int(ends[-1])
        workers = getattr(self.pool, "workers", 1)
        count = max(-(-total // self.sizes.range_events), workers * self.sizes.ranges_per_worker)
        count = -(-count // workers) * workers  # else some wait while others do the last ones
        targets = np.arange(1, count) * total // count
        inner = np.searchsorted(ends, targets, side="left") + 1
        return np.unique(np.concatenate([[0], inner, [len(rows)]])).astype(np.int64)

    def _sort(
        self, ranges: list[Range], counts: NDArray[np.int64], items: int, removed: dict[str, int]
    ) -> None:
        assert self.job is not None
        ends = np.cumsum(counts, axis=1)
        begins, drawn = ends - counts, np.cumsum(counts.sum(0)) - counts.sum(0)
        tasks = [
            SortRange(each, np.stack([begins[:, n], ends[:, n]], 1), int(drawn[n]), items)
            for n, each in enumerate(ranges)
        ]
        found = self.tasks("sorting", tasks)
        _note(history_filters(self.options), [each.passed for each in found], removed)
        remove(self.job.folder / "scattered")


@dataclass(frozen=True)
class _Known:
    kind: TimesKind

    def __call__(self, steps: Steps | None) -> TimesKind:  # noqa: ARG002 - it is known
        return self.kind


@dataclass(frozen=True)
class _Guess:
    numbers: bool

    def __call__(self, steps: Steps | None) -> TimesKind:
        return kind_of(steps, lambda: self.numbers)


def _rows(file: LogFile, rows: Rows) -> int:
    """How many there are; a guess where a file is read at once."""
    return file.at.stat().st_size // TEXT_ROW_BYTES if rows.count is None else rows.count


def _for_workers(options: PrepareOptions) -> PrepareOptions:
    """Without what only the items need, which may be large."""
    return replace(options, items=None, item_vectors=None, feature_kinds={})


def _id_kind(role: str, read: Sequence[ChunkRead]) -> pl.DataType:
    """Ids that are integers in one chunk and names in another are names."""
    kinds = {each.id_kinds[role] for each in read}
    return kinds.pop() if len(kinds) == 1 else pl.String()


def _note(
    filters: Sequence[Filter],
    passed: Sequence[Sequence[tuple[int, int]]],
    removed: dict[str, int],
) -> None:
    """What the filters removed of all parts of the log."""
    for n, each in enumerate(filters):
        before, after = (sum(part[n][which] for part in passed) for which in (0, 1))
        note_removed(removed, Removed(each.name, each.value, before, after))
