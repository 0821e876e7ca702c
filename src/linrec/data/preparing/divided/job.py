"""What all tasks have in common, and how a worker does one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from linrec.data.preparing.options import PrepareOptions
from linrec.types import InputError


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

    def start(self) -> Callable[[Task], Any]:
        return self._do

    def _do(self, task: Task) -> Any:
        try:
            return task.do(self)
        except InputError as error:  # of this very type, which can be sent
            raise InputError(error.args[0]) from error
