"""A real Redis of our own, on a free port, that can be killed and started again."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

PROGRAM = "redis-server"
SECONDS = 10


def why_no_redis() -> str | None:
    if shutil.which(PROGRAM) is None:
        return f"{PROGRAM} is not installed: apt-get install redis-server, or make services as root"
    if importlib.util.find_spec("redis") is None:
        return "the redis package is not installed: pip install linrec[serve]"
    return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RedisServer:
    """Keeps every write before it answers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        options = [
            "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
            "--appendonly", "yes", "--appendfsync", "always", "--save", "",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            [PROGRAM, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + SECONDS
        while not self._answers():
            assert time.monotonic() < until, "redis-server did not start"
            time.sleep(0.02)

    def _answers(self) -> bool:
        import redis

        try:
            return bool(redis.Redis(port=self.port).ping())
        except redis.exceptions.RedisError:
            return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def empty(self) -> None:
        import redis

        redis.Redis(port=self.port).flushall()
