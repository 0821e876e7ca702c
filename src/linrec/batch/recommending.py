"""Recommendations for everybody: one Parquet file per range of users, in a folder.

A part depends on its users alone, so it is the same wherever it is made, and a folder that was
interrupted is completed by what is missing. recommendations.json says what all parts belong to; it
is there before them, and says `complete` after the last one.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from linrec.cluster.options import EngineOptions
from linrec.cluster.pool import open_pool
from linrec.files.atomic import check_free, write_bytes, write_text
from linrec.files.drafts import recover
from linrec.files.remote import place
from linrec.types import InputError

# a worker imports torch and opens the run; this process, which only hands out parts, need not
if TYPE_CHECKING:
    from linrec.data.dataset.store import SequenceStore
    from linrec.evaluation.ranks import ProgressCallback
    from linrec.recommender import Recommender

MARKER = "recommendations.json"
PART_USERS = 10_000
"""Users per file: enough to fill the batches, few enough to be lost with a machine."""


class Part(NamedTuple):
    """A file, and the users that it is for."""

    place: int
    first: int
    end: int

    @property
    def name(self) -> str:
        return f"part-{self.place:05d}.parquet"


class Whole(NamedTuple):
    """What all parts are made of, as the worker that was asked first has found it."""

    data: Path
    users: int
    fingerprint: str
    model: list[str]  # checksums


class Done(NamedTuple):
    recommendations: int
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What every part is made with; it is sent to the workers."""

    run: Path
    out: Path
    data: Path | None = None
    k: int = 10
    options: Mapping[str, Any]  # the other arguments of `Recommender.recommend`

    def start(self) -> Callable[[Part | None], Whole | Done]:
        """A worker: the model and the dataset are opened once."""
        from linrec.recommender import load

        model = load(self.run)
        return partial(self._do, model, model.dataset(self.data))

    def _do(self, model: Recommender, store: SequenceStore, part: Part | None) -> Whole | Done:
        return self.look(model, store) if part is None else self.write(model, store, part)

    def look(self, model: Recommender, store: SequenceStore) -> Whole:
        """Refuses what no part would accept."""
        from linrec.runs.run import Run

        assert store.path is not None, "a run without a dataset is refused before"
        model.recommend(store.users.ids[:1], self.k, data=store, **self.options)
        checksums = Run.load(self.run)[0].model_checksums
        return Whole(store.path, store.n_users, store.fingerprint, checksums)

    def write(self, model: Recommender, store: SequenceStore, part: Part) -> Done:
        """One part; its file appears complete or not at all."""
        users = store.users.ids_of(np.arange(part.first, part.end))
        found = model.recommend(users, self.k, data=store, **self.options)
        content = io.BytesIO()
        found.to_polars().write_parquet(content)
        write_bytes(self.out / part.name, content.getvalue())
        return Done(len(found), found.notes)


@dataclass(frozen=True)
class Written:
    """What was done, for whoever asked."""

    parts: int
    skipped: int  # parts that were there already
    recommendations: int  # of the parts that were not
    notes: tuple[str, ...]


def recommend_everybody(
    job: Job,
    engine: EngineOptions | None = None,
    *,
    part_users: int = PART_USERS,
    progress: ProgressCallback | None = None,
) -> Written:
    """Fill the folder with the parts that it lacks; a folder of another job is refused."""
    check_free(job.out, overwrite=True, marker=MARKER)
    recover(job.run)
    if not job.run.is_dir():
        raise InputError(f"there is no run at {job.run}; `linrec train` makes one")
    data = None if job.data is None else place(job.data).resolve()
    # workers may have another current folder
    job = replace(job, run=job.run.resolve(), out=job.out.resolve(), data=data)
    shared = [job.run, next(path for path in job.out.parents if path.exists())]
    with open_pool(engine or EngineOptions(), shared) as pool:
        pool.begin(job.start)
        # refused before anything is written: settings of another job, and what no part would accept
        ((_, whole),) = pool.run(job.start, [None])
        pool.check([whole.data])
        described = _described(job, whole, part_users)
        _check_same(job.out, described)
        bounds = [*range(0, whole.users, part_users), whole.users]
        parts = [Part(n, *pair) for n, pair in enumerate(pairwise(bounds))]
        missing = [part for part in parts if not (job.out / part.name).is_file()]
        _write_marker(job.out, described, complete=False)
        done: dict[str, Done] = {}
        for number, result in pool.run(job.start, missing):
            done[missing[number].name] = result
            if progress is not None:
                progress(len(parts) - len(missing) + len(done), len(parts))
    _write_marker(job.out, described, complete=True)
    count = sum(each.recommendations for each in done.values())
    return Written(len(parts), len(parts) - len(missing), count, _notes(done))


def _described(job: Job, whole: Whole, part_users: int) -> dict[str, Any]:
    content = {
        "format_version": 1,
        "model": whole.model,
        "dataset": whole.fingerprint,
        "users": whole.users,
        "users_per_part": part_users,
        "k": job.k,
        **job.options,
    }
    plain: dict[str, Any] = json.loads(json.dumps(content, default=str))
    return plain


def _write_marker(out: Path, described: Mapping[str, Any], *, complete: bool) -> None:
    write_text(out / MARKER, json.dumps({**described, "complete": complete}, indent=2) + "\n")


def _check_same(out: Path, described: Mapping[str, Any]) -> None:
    if not (out / MARKER).is_file():
        return
    try:
        before = json.loads((out / MARKER).read_text(encoding="utf-8"))
        different = [name for name in described if before.get(name) != described[name]]
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{out / MARKER} is damaged; delete the folder {out}") from error
    if different:
        raise InputError(
            f"{out} holds recommendations that differ in {', '.join(different)}; choose another "
            "folder, or delete it"
        )


def _notes(done: Mapping[str, Done]) -> tuple[str, ...]:
    """What all parts say is said once, and else of which part it is."""
    every = [each.notes for each in done.values()]
    common = [note for note in (every[0] if every else ()) if all(note in notes for notes in every)]
    own = [f"{name}: {n}" for name, each in done.items() for n in each.notes if n not in common]
    return (*common, *own)
