"""uvicorn around the application: one process, ended by SIGTERM once all it took is answered."""

from __future__ import annotations

import signal
import socket
import sys

import uvicorn

from linrec.serving.engine import Engine
from linrec.serving.http.app import create_app
from linrec.serving.http.observing import log_as_json
from linrec.serving.http.options import HttpOptions
from linrec.types import InputError


def bound(host: str, port: int) -> socket.socket:
    """The address, taken before the long work of loading; nobody is answered yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
    except (OSError, OverflowError) as error:
        opened.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on {host} port {port}: {reason}; choose another --host or --port"
        ) from None
    return opened


def serve(engine: Engine, options: HttpOptions, address: socket.socket) -> None:
    """Until SIGTERM or Ctrl-C."""
    log_as_json()
    config = uvicorn.Config(
        create_app(engine, options),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=int(options.grace),
        limit_concurrency=options.connections,
        h11_max_incomplete_event_size=64 * 1024,
    )
    # uvicorn sends itself the signal again once all is answered, and that is a good end
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: sys.exit(0))
    uvicorn.Server(config).run([address])
