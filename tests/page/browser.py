"""A real server and a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SECONDS_TO_START = 30


def why_no_browser() -> str | None:
    if not any(map(shutil.which, BROWSERS)):
        return "no chromium on PATH; apt-get install chromium"
    return None


@contextlib.contextmanager
def browsing() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu"],  # a container's root has no sandbox
        )
        yield browser
        browser.close()


@contextlib.contextmanager
def serving(run: Path, token: str | None = None) -> Iterator[tuple[str, Any]]:
    """The server on a free port of this machine: its address and its engine."""
    import uvicorn

    from linrec.serving import Engine, open_store
    from linrec.serving.http.app import create_app
    from linrec.serving.http.options import HttpOptions

    engine = Engine(run, open_store("memory"))
    app = create_app(engine, HttpOptions(token=token))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until = monotonic() + SECONDS_TO_START
        while not server.started and monotonic() < until:
            sleep(0.02)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", engine
        server.should_exit = True
        thread.join(SECONDS_TO_START)
