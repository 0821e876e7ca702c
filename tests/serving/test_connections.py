"""Five hundred connections at once: all are answered, and none leaves a descriptor behind."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from linrec.serving import Engine, open_store
from tests.serving.serving_process import within

CONNECTIONS = 500
BODY = b'{"user": "u%d", "events": [{"item": "i01", "id": "e"}]}'


async def send(port: int, number: int, opened: asyncio.Semaphore, go: asyncio.Event) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await opened.acquire()
    if opened.locked():
        go.set()
    await go.wait()  # all of them are open before the first one asks
    body = BODY % number
    head = b"POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    writer.write(head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
    response = await reader.read()
    writer.close()
    return response.split(b"\r\n", 1)[0]


async def send_all(port: int) -> list[bytes]:
    opened, go = asyncio.Semaphore(CONNECTIONS), asyncio.Event()
    return await asyncio.gather(*(send(port, n, opened, go) for n in range(CONNECTIONS)))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_all_are_answered(run: Path, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "u.sqlite"))
    options = {"max_connections_per_address": CONNECTIONS, "max_requests": CONNECTIONS}
    with within(Engine(run, store), **options) as url:
        port = int(url.rpartition(":")[2])
        asyncio.run(send_all(port))  # opens the connections to the store
        before = descriptors()
        assert set(asyncio.run(send_all(port))) == {b"HTTP/1.1 200 OK"}
        until = time.monotonic() + 10
        while descriptors() > before and time.monotonic() < until:
            time.sleep(0.05)
        assert descriptors() <= before
        assert len(store.users("u", 1000)) == CONNECTIONS
