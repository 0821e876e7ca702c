"""The pool on Ray: one actor per worker; a task whose process is lost is begun again elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from linrec.cluster.connection import connected, imported
from linrec.cluster.nodes import check_nodes
from linrec.cluster.options import EngineOptions
from linrec.cluster.pool import Worker
from linrec.types import InputError, argument

RESTARTS = 10  # of one worker, before the command gives up


class RayWorker:
    """Lives in a process of its own; prepares itself with the first task.

    What it is given are references in lists, which Ray does not open before it is called: what
    they hold imports libraries, and these read the number of threads once. Each task brings the
    start too, because a worker that is begun again knows nothing.
    """

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def begin(self, start: list[Any]) -> None:
        """What goes wrong here is told by the first task, which tries it again."""
        with suppress(Exception):
            self._prepared(start[0])

    def do(self, start_and_task: list[Any]) -> Any:
        start, task = start_and_task
        try:
            return self._prepared(start)(imported().get(task))
        except InputError as error:  # of this very type, which can be sent
            raise InputError(*error.args) from error

    def _prepared(self, start: Any) -> Worker:
        if self._worker is None:
            for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):  # as many processes as CPUs
                os.environ[name] = "1"
            self._worker = imported().get(start)()
            if "torch" in sys.modules:  # not every task needs it
                sys.modules["torch"].set_num_threads(1)
        return self._worker


class RayPool:
    def __init__(self, ray: Any, workers: int, *, ours: bool) -> None:
        """ours: whether the cluster is that of this command, on this machine."""
        self._ray, self.workers, self._ours = ray, workers, ours
        self._start: Callable[[], Worker] | None = None
        self._stored: Any = None  # a reference to the start, held while there are workers
        self._actors: list[Any] = []
        self._begun: list[Any] = []  # references to what begins

    def begin(self, start: Callable[[], Worker]) -> None:
        """All workers; their processes start while the caller goes on."""
        self._grow(start, self.workers)
        for actor in self._actors:
            begin = actor.begin.options(max_task_retries=0)
            self._begun.append(begin.remote([self._stored]))

    def check(self, paths: Sequence[Path]) -> None:
        if not self._ours:  # here, all is as it is for this process
            check_nodes(self._ray, paths)

    def run(self, start: Callable[[], Worker], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Workers stay for the next run that starts them alike."""
        self._grow(start, min(self.workers, len(tasks)))
        try:
            yield from self._results(list(self._actors), list(enumerate(tasks)))
        except BaseException:
            self.close()  # others are busy with what nobody waits for
            raise

    def _grow(self, start: Callable[[], Worker], count: int) -> None:
        if start != self._start:
            self.close()
            self._start, self._stored = start, self._ray.put(start)
        make = self._ray.remote(RayWorker).options(
            num_cpus=1, max_restarts=RESTARTS, max_task_retries=RESTARTS
        )
        while len(self._actors) < count:
            self._actors.append(make.remote())

    def end(self) -> None:
        """Leave no worker. On a cluster of ours idle ones end with it, which is sooner."""
        idle = not self._ray.wait(self._begun, num_returns=len(self._begun), timeout=0)[1]
        if not (self._ours and idle):
            self.close()

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors, self._begun = [], []

    def _results(
        self, actors: list[Any], waiting: list[tuple[int, Any]]
    ) -> Iterator[tuple[int, Any]]:
        waiting.reverse()
        busy: dict[Any, tuple[int, Any]] = {}
        idle = list(actors)
        while waiting or busy:
            while idle and waiting:
                actor, (place, task) = idle.pop(), waiting.pop()
                given = [self._stored, self._ray.put(task)]
                busy[actor.do.remote(given)] = (place, actor)
            (done, *_), _ = self._ray.wait(list(busy), num_returns=1)
            place, actor = busy.pop(done)
            yield place, self._result(done)
            idle.append(actor)

    def _result(self, reference: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            if isinstance(error.cause, InputError):
                raise InputError(*error.cause.args) from error
            raise
        except errors.RayActorError as error:
            raise InputError(
                f"a worker was lost {RESTARTS + 1} times, as when memory runs out; give fewer "
                f"{argument('workers')}, or machines with more memory"
            ) from error


@contextmanager
def ray_pool(options: EngineOptions, paths: Sequence[Path]) -> Iterator[RayPool]:
    """Connect or start Ray, check that its machines can do the work, and leave as it was found."""
    with connected(options.address, options.workers) as ray:
        pool = RayPool(ray, _workers(ray, options), ours=options.address is None)
        try:
            pool.check(paths)
            yield pool
        finally:
            pool.end()


def _workers(ray: Any, options: EngineOptions) -> int:
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if options.workers is not None and options.workers > cpus:
        raise InputError(
            f"{argument('workers', options.workers)} need a CPU each, and the Ray cluster has "
            f"{cpus}; give fewer, or add machines"
        )
    if not cpus:
        raise InputError("the Ray cluster has no CPU; add a machine to it")
    return options.workers or cpus
