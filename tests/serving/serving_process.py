"""`linrec serve` as a process of its own, to be killed, and the same server within the test."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from linrec.serving import Engine
from linrec.serving.http.options import HttpOptions, Sharing
from linrec.serving.http.server import server_config
from tests.serving.redis_server import free_port

SECONDS = 180  # a machine that does much else takes long to import torch


def client(url: str, **options: Any) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=SECONDS, trust_env=False, **options)


@contextlib.contextmanager
def within(engine: Engine, sharing: Sharing | None = None, **options: Any) -> Iterator[str]:
    """Serve from a thread of this process; yields the address."""
    port = free_port()
    made = HttpOptions(**options)
    server = uvicorn.Server(server_config(engine, made, port, sharing))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + SECONDS
    while not server.started:
        assert time.monotonic() < until, "the server did not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(SECONDS)


class ServeProcess:
    def __init__(self, run: Path, store: str, *options: str, token: str | None = None) -> None:
        self._arguments = ["serve", str(run), "--store", store, "--threads", "1", *options]
        self._env = {k: v for k, v in os.environ.items() if k != "LINREC_TOKEN"}
        if token is not None:
            self._env["LINREC_TOKEN"] = token
        self.process: subprocess.Popen[str] | Forked | None = None
        self.log = run.parent / f"serve-{time.monotonic_ns()}.log"

    def start(self) -> str:
        port = free_port()
        self.process = self._launch([*self._arguments, "--port", str(port)])
        url = f"http://127.0.0.1:{port}"
        for _ in range(10 * SECONDS):  # time in which the machine stands still does not count
            with contextlib.suppress(httpx.TransportError), client(url) as asking:
                if asking.get("/healthz").status_code == 200:
                    return url
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.1)
        raise AssertionError("linrec serve did not start")

    def _launch(self, arguments: list[str]) -> subprocess.Popen[str] | Forked:
        command = str(Path(sys.executable).parent / "linrec")
        with self.log.open("a") as log:
            return subprocess.Popen(
                [command, *arguments], env=self._env, stdout=log, stderr=log, text=True
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """SIGTERM; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


class ForkedServe(ServeProcess):
    """The same, forked from a process that has imported everything: it starts in an instant."""

    def _launch(self, arguments: list[str]) -> Forked:
        return Forked(_forks().Process(target=_serve, args=(arguments, self.log), daemon=True))


class Forked:
    """A process of multiprocessing with the methods of subprocess.Popen."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        assert self._process.exitcode is not None, "still running"
        return self._process.exitcode


@functools.cache
def _forks() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["linrec.serving.http.server", "linrec.serving.http.app", "linrec.recommender"]
    )
    return context


def _serve(arguments: list[str], log: Path) -> None:
    """In the new process: what the command does, its output appended to the log."""
    from linrec.cli import main

    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.pop("LINREC_TOKEN", None)
    sys.argv = ["linrec", *arguments]
    main()
