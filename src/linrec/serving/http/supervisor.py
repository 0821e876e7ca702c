"""Several processes on one machine that serve one address, and the one that looks after them.

The supervisor binds the address once and hands the same socket to every worker. So the kernel has
one queue of new connections, and whichever worker is free takes the next one. With a socket per
worker (SO_REUSEPORT) the kernel chooses by a hash of the client's address: connections would wait
for a worker that is busy, or be lost with one that was killed, while another one is idle.

Workers are forked from a process that has imported everything but computed nothing (multiprocessing
calls it fork server): a worker is back within a second or so, and no thread of torch is forked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from types import FrameType
from typing import Any

from linrec.serving.http.observing import LOG, count_restarts, log_as_json
from linrec.serving.http.worker import WorkerPlan, work
from linrec.types import InputError

MIN_PAUSE, MAX_PAUSE = 0.5, 30.0  # seconds before a dead worker is started again
STEADY = 60.0  # seconds after which a worker that ended is started again without a pause
AFTER_GRACE = 5.0  # seconds beyond the grace period until a worker is killed
PRELOADED = ["linrec.serving.http.server", "linrec.serving.engine"]
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass
class _Worker:
    number: int
    process: BaseProcess | None = None
    report: Connection | None = None  # None once it has reported
    started: float = 0.0
    failures: int = 0  # in a row
    start_at: float = 0.0
    ready: bool = False  # it has loaded the model at least once


class Supervisor:
    """Starts the workers, starts dead ones again, and passes signals on."""

    def __init__(self, plan: WorkerPlan, address: socket.socket) -> None:
        self._plan, self._address = plan, address
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._workers = [_Worker(number) for number in range(plan.http.workers)]
        self._stopping = self._reload = False
        self._problem: str | None = None
        self._restarts = count_restarts(plan.shared)

    def run(self) -> None:
        """Until SIGTERM or Ctrl-C; raises InputError if the run cannot be served at all."""
        log_as_json()
        with _woken_by_signals(self._on_signal) as woken:
            try:
                while not self._stopping:
                    self._start_those_due()
                    self._wait(woken)
                    if self._reload:
                        self._reload = False
                        self._send(signal.SIGHUP)
            finally:
                self._stop()
        if self._problem is not None:
            raise InputError(self._problem)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGHUP:
            self._reload = True
        else:
            self._stopping = True

    def _start_those_due(self) -> None:
        now = monotonic()
        for worker in self._workers:
            if worker.process is None and worker.start_at <= now:
                self._start(worker)

    def _start(self, worker: _Worker) -> None:
        worker.report, theirs = self._context.Pipe(duplex=False)
        arguments = (self._plan, worker.number, self._address, theirs)
        worker.process = self._context.Process(
            target=work, args=arguments, name=f"linrec worker {worker.number}"
        )
        worker.process.start()
        theirs.close()
        worker.started = monotonic()
        _log("worker started", worker)

    def _wait(self, woken: socket.socket) -> None:
        """For a signal, a report, the end of a worker, or the time to start one again."""
        waiting: list[Any] = [woken]
        pauses = []
        for worker in self._workers:
            if worker.process is None:
                pauses.append(max(worker.start_at - monotonic(), 0))
            else:
                waiting += [worker.process.sentinel, *_known(worker.report)]
        wait(waiting, timeout=min(pauses, default=None))
        with contextlib.suppress(BlockingIOError):
            woken.recv(4096)
        for worker in self._workers:
            self._look_at(worker)

    def _look_at(self, worker: _Worker) -> None:
        if worker.report is not None and worker.report.poll():
            self._read_report(worker, worker.report)
        if worker.process is not None and not worker.process.is_alive():
            self._ended(worker)

    def _read_report(self, worker: _Worker, report: Connection) -> None:
        with contextlib.suppress(EOFError):  # it ended without a word
            problem = report.recv()
            if problem is None:
                worker.ready = True
            elif not any(each.ready for each in self._workers):  # nothing was ever served
                self._problem, self._stopping = problem, True
            else:
                LOG.error("worker cannot start", extra={"fields": {"reason": problem}})
        report.close()
        worker.report = None

    def _ended(self, worker: _Worker) -> None:
        assert worker.process is not None
        code = worker.process.exitcode
        worker.process.join()
        steady = monotonic() - worker.started > STEADY
        worker.failures = 0 if steady else worker.failures + 1
        pause = pause_after(worker.failures)
        worker.process, worker.start_at = None, monotonic() + pause
        if worker.report is not None:
            worker.report.close()
            worker.report = None
        if not self._stopping:
            self._restarts.inc()
            _log("worker ended", worker, exit_code=code, restart_in_seconds=pause)

    def _send(self, number: int) -> None:
        for worker in self._workers:
            if worker.process is not None and worker.process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.process.pid, number)

    def _stop(self) -> None:
        self._address.close()  # as soon as the workers do the same, new connections are refused
        until = monotonic() + self._plan.http.grace + AFTER_GRACE
        running = [worker.process for worker in self._workers if worker.process is not None]
        for process in running:
            process.terminate()
        for process in running:
            process.join(max(until - monotonic(), 0.1))
            if process.is_alive():
                process.kill()
                process.join()


def pause_after(failures: int) -> float:
    """Seconds, twice as long after each failure in a row."""
    if not failures:
        return 0.0
    return float(min(MIN_PAUSE * 2 ** min(failures - 1, 10), MAX_PAUSE))


def supervise(plan: WorkerPlan, address: socket.socket) -> None:
    Supervisor(plan, address).run()


@contextlib.contextmanager
def shared_folder() -> Iterator[str]:
    """For the counts and sockets of the workers, removed in the end."""
    with tempfile.TemporaryDirectory(prefix="linrec-workers-") as folder:
        yield folder


@contextlib.contextmanager
def _woken_by_signals(handler: Any) -> Iterator[socket.socket]:
    """A socket that has something to read whenever a signal came."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        before = signal.set_wakeup_fd(theirs.fileno())
        old = {number: signal.signal(number, handler) for number in SIGNALS}
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(before)
            for number, earlier in old.items():
                signal.signal(number, earlier)


def _known(report: Connection | None) -> Sequence[Connection]:
    return () if report is None else (report,)


def _log(message: str, worker: _Worker, **more: object) -> None:
    assert worker.process is not None or more
    pid = None if worker.process is None else worker.process.pid
    fields = {"worker": worker.number, "pid": pid} if pid else {"worker": worker.number}
    LOG.info(message, extra={"fields": fields | more})
