"""uvicorn around the application: a process, ended by SIGTERM within a stated time."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from threading import Timer
from types import FrameType

import uvicorn

from linrec.serving.engine import Engine
from linrec.serving.http.app import create_app
from linrec.serving.http.observing import LOG, log_as_json
from linrec.serving.http.options import HttpOptions, Sharing
from linrec.serving.http.protocol import bounded_protocol
from linrec.types import InputError, argument

FOR_REQUESTS = 0.8  # of the grace period; what remains is for closing the engine and the store


def bound(host: str, port: int) -> socket.socket:
    """The address, taken before the long work of loading; no request is accepted yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
    except (OSError, OverflowError) as error:
        opened.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on {host} port {port}: {reason}; choose another {argument('host')} or "
            f"{argument('port')}"
        ) from None
    return opened


class Server(uvicorn.Server):
    """Ends within the grace period after a signal, also if work cannot be interrupted."""

    def __init__(self, config: uvicorn.Config, grace: float) -> None:
        super().__init__(config)
        self._grace = grace

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            timer = Timer(self._grace, _end_now)
            timer.daemon = True
            timer.start()
        super().handle_exit(sig, frame)


def _end_now() -> None:
    # every commit is atomic and on the disk before it is acknowledged, so nothing is lost
    LOG.error("ended with requests unfinished, because the grace period is over")
    os._exit(1)


def server_config(
    engine: Engine, options: HttpOptions, port: int = 0, sharing: Sharing | None = None
) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(engine, options, sharing),
        port=port,
        http=bounded_protocol(options),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=max(int(options.idle_timeout), 1),
        timeout_graceful_shutdown=max(int(FOR_REQUESTS * options.grace), 1),
    )


def serve(
    engine: Engine, options: HttpOptions, address: socket.socket, sharing: Sharing | None = None
) -> None:
    """Until SIGTERM or Ctrl-C."""
    log_as_json(None if sharing is None else sharing.number)
    # uvicorn sends itself the signal again after the shutdown, and that is a normal end
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: sys.exit(0))
    server = Server(server_config(engine, options, sharing=sharing), options.grace)
    # the model and all that was imported stay until the end: no collection looks at them again
    gc.collect()
    gc.freeze()
    server.run([address])
