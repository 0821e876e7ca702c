"""Between the process that was started by hand and the first worker of a training.

Its actor imports nothing large: what it carries are bytes.
"""

from __future__ import annotations

import asyncio


class Mailbox:
    """Carries messages to the driver, and its wish to stop back. Lives beside the driver."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._stop = asyncio.Event()

    async def post(self, message: bytes) -> None:
        """Of a worker."""
        self._waiting.put_nowait(message)

    async def take(self) -> list[bytes]:
        """Of the driver: what has come, perhaps nothing."""
        return [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]

    async def stop(self) -> None:
        """Of the driver."""
        self._stop.set()

    async def stopped(self) -> None:
        """Of a worker: returns when the driver wants to stop."""
        await self._stop.wait()
