"""Several processes of one command on this machine, as torchrun would start them.

The process that was started by hand trains nothing: it starts the workers, passes Ctrl-C on, and
when one of them fails it ends the others, so that none is left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from types import FrameType

from linrec.training.world import World
from linrec.types import InputError, LinrecError, argument

SUPERVISED = "LINREC_SUPERVISED"  # set for workers: their standard input ends with their parent
ADDRESS = "127.0.0.1"
# for workers to end by themselves once one of them has: they may have the same to say
PATIENCE = 10.0
POLL = 0.05
INTERRUPTED = 130


class WorkerFailedError(LinrecError):
    """One of the processes has failed, and the others were ended."""


def check_workers(count: int) -> None:
    """Refuse a number of workers that cannot be started from here."""
    if count < 1:
        raise InputError(f"{argument('workers', count)} must be at least 1")
    world = World.of_environment()
    if world.count > 1:
        raise InputError(
            f"this is one of {world.count} processes already (WORLD_SIZE); leave "
            f"{argument('workers')} out under torchrun"
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if count > 64 * (cores or 1):
        raise InputError(
            f"{argument('workers', count)} is too many for {cores} cores; start one per core or GPU"
        )


def launch(command: Sequence[str], count: int) -> int:
    """Run the command in `count` processes; the exit code of the first worker.

    Ctrl-C reaches each of them once. A second one ends them at once.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    # kept here, so that no other program can take its port in between
    store = TCPStore(ADDRESS, 0, is_master=True, wait_for_workers=False)
    group = _Group([_start(command, rank, count, store.port) for rank in range(count)])
    handlers = {number: signal.signal(number, group.pass_on) for number in _passed_on()}
    try:
        return group.wait()
    finally:
        group.end()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """In a worker: end when the process that started it is gone, however it ended."""
    if not os.environ.get(SUPERVISED):
        return

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


def _passed_on() -> tuple[signal.Signals, ...]:
    return (signal.SIGINT, signal.SIGTERM)


def _start(command: Sequence[str], rank: int, count: int, port: int) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "RANK": str(rank), "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": ADDRESS, "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is here, not in the first worker
        SUPERVISED: "1",
    }  # fmt: skip
    # a session of its own: the terminal would send Ctrl-C a second time
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, start_new_session=True)


class _Group:
    def __init__(self, workers: Sequence[subprocess.Popen[bytes]]) -> None:
        self.workers = workers
        self.interrupts = 0

    def pass_on(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.interrupts += number == signal.SIGINT
        self._send(signal.SIGKILL if self.interrupts > 1 else signal.Signals(number))

    def wait(self) -> int:
        """Until all have ended, or one of them has failed."""
        while True:
            codes = [worker.poll() for worker in self.workers]
            failed = next((rank for rank, code in enumerate(codes) if code), None)
            if failed is not None:
                return self._after(failed)
            if None not in codes:
                return 0
            time.sleep(POLL)

    def _after(self, failed: int) -> int:
        """The others may have failed for the same reason, and then the first one has said it."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and any(worker.poll() is None for worker in self.workers):
            time.sleep(POLL)
        self.end()
        code = self.workers[failed].returncode
        if self.workers[0].returncode == code or self.interrupts:
            return INTERRUPTED if self.interrupts else _positive(code)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed (code {code})"
        raise WorkerFailedError(
            f"worker {failed + 1} of {len(self.workers)} {how}, so the others were stopped; the "
            f"same command with {argument('resume', True)} continues from the last checkpoint"
        )

    def end(self) -> None:
        """Leave no worker behind."""
        self._send(signal.SIGTERM)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and any(worker.poll() is None for worker in self.workers):
            time.sleep(POLL)
        self._send(signal.SIGKILL)
        for worker in self.workers:
            worker.wait()

    def _send(self, number: signal.Signals) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(number)


def _positive(code: int) -> int:
    """A shell's code for a process that a signal ended."""
    return code if code >= 0 else 128 - code
