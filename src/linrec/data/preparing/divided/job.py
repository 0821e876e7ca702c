"""What all tasks have in common, and how a worker does one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from linrec.data.preparing.options import PrepareOptions

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


class Task(Protocol):
    def do(self, job: Job) -> Any: ...


@dataclass(frozen=True)
class Job:
    """One `prepare`, as it is sent to the workers."""

    folder: Path  # where tasks leave files for each other
    options: PrepareOptions
    form: str
    columns: dict[str, str]  # our name -> the source's, those of the context included
    buckets: int

    @property
    def id_roles(self) -> list[str]:
        return [role for role in ("user", "item", "group") if role in self.columns]

    @property
    def context(self) -> list[str]:
        """The columns that are kept, by the caller's names."""
        return list(self.options.context_kinds)

    def chunk(self, place: int) -> Path:
        return self.folder / "chunks" / f"{place:06d}"

    def bucket(self, role: str, place: int) -> Path:
        return self.folder / "ids" / f"{role}-{place:06d}"

    def scattered(self, place: int) -> Path:
        return self.folder / "scattered" / f"{place:06d}.npy"

    def histories(self, place: int) -> Path:
        return self.folder / "histories" / f"{place:06d}"


class Step(NamedTuple):
    """A task, with what is known when it is sent; a worker itself knows nothing and is kept."""

    job: Job
    task: Task


def start() -> Callable[[Step], Any]:
    """A worker."""
    import pyarrow.compute  # noqa: F401 - all that tasks will need

    import linrec.data.preparing.divided.driver  # noqa: F401

    _keep_memory()
    return _do


def _keep_memory() -> None:
    """Arrays of one task take the memory of those before, where the C library can be told so.

    Else each is given back and comes again page by page, a tenth of a worker's time.
    """
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        for parameter in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            library.mallopt(parameter, 1 << 30)


def _do(step: Step) -> Any:
    return step.task.do(step.job)
