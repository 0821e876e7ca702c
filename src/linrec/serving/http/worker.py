"""One of several processes that serve from one listening socket: `linrec serve --workers`."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread

from linrec.serving.http.options import HttpOptions, Sharing
from linrec.serving.settings import EngineSettings
from linrec.types import LinrecError


@dataclass(frozen=True, kw_only=True)
class WorkerPlan:
    """What every worker serves."""

    run: Path
    store: str
    engine: EngineSettings
    http: HttpOptions
    threads: int  # of a model call
    shared: str  # folder of the workers' counts and sockets


def work(plan: WorkerPlan, number: int, address: socket.socket, report: Connection) -> None:
    """Serve until SIGTERM, Ctrl-C or the end of the supervisor.

    report: gets None once the model is loaded, or a sentence why it cannot be served.
    """
    for each in (signal.SIGTERM, signal.SIGINT):  # nothing has to be finished yet
        signal.signal(each, signal.SIG_DFL)
    # one that comes while the model is loaded waits until the server listens to it (reloading.py)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    Thread(target=_end_with_supervisor, daemon=True).start()
    take_cores(number, plan.http.workers)
    import torch

    from linrec.serving import Engine, StoreError, open_store
    from linrec.serving.http.observing import count_in
    from linrec.serving.http.server import serve

    count_in(plan.shared, number)
    torch.set_num_threads(plan.threads)
    # one process looks for users whose time is over
    settings = plan.engine if number == 0 else replace(plan.engine, user_ttl=None)
    try:
        engine = Engine(plan.run, open_store(plan.store), settings)
    except (LinrecError, StoreError) as error:
        report.send(error.args[0])  # the command line renders it
        sys.exit(1)
    report.send(None)
    report.close()
    sharing = Sharing(number, plan.http.workers, plan.shared, _tell_supervisor())
    serve(engine, plan.http, address, sharing)


def take_cores(number: int, workers: int) -> None:
    """Divide the cores among the workers, where there are enough.

    The threads of a worker take turns anyway, and handing over from core to core takes longer.
    """
    if not hasattr(os, "sched_getaffinity"):  # not Linux
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= workers:
        os.sched_setaffinity(0, cores[number::workers])


def _end_with_supervisor() -> None:
    supervisor = parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _tell_supervisor() -> Callable[[], None]:
    """By the signal that an operator would send."""
    supervisor = parent_process()
    if supervisor is None or supervisor.pid is None:
        return lambda: None
    pid = supervisor.pid
    return lambda: os.kill(pid, signal.SIGHUP)
