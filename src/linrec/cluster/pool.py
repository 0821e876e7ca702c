"""Independent tasks, done by workers that each prepare themselves once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from linrec.cluster.options import EngineOptions

Worker = Callable[[Any], Any]
"""From a task to its result."""


class Pool(Protocol):
    """Runs tasks somewhere."""

    def begin(self, start: Callable[[], Worker]) -> None:
        """Prepare the workers for a run to come, without waiting for them."""
        ...

    def check(self, paths: Sequence[Path]) -> None:
        """Refuse a cluster with a machine that does not see these, which exist here."""
        ...

    def run(self, start: Callable[[], Worker], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """The place of each task and its result, in the order in which they are finished.

        start: makes a worker, once in each process; loads what all tasks need. A task may be begun
        again elsewhere when its process is lost, so doing it twice must do no harm.
        """
        ...


class LocalPool:
    """One after the other, in this process."""

    _start: Callable[[], Worker] | None = None
    _worker: Worker | None = None

    def begin(self, start: Callable[[], Worker]) -> None:
        """There is nothing to prepare."""

    def check(self, paths: Sequence[Path]) -> None:
        """There is only this machine."""

    def run(self, start: Callable[[], Worker], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """The worker stays for the next run that starts it alike."""
        if not tasks:
            return
        if self._worker is None or start != self._start:
            self._start, self._worker = start, start()
        for place, task in enumerate(tasks):
            yield place, self._worker(task)


@contextmanager
def open_pool(options: EngineOptions, paths: Sequence[Path] = ()) -> Iterator[Pool]:
    """paths: what every worker must see: folders and files that exist."""
    if options.engine == "local":
        yield LocalPool()
        return
    from linrec.cluster.ray_pool import ray_pool

    with ray_pool(options, paths) as pool:
        yield pool
