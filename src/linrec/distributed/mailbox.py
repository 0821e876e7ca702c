"""Between the process that was started by hand and the first worker of a training.

Its actor imports nothing large: what it carries are references to messages, which it never opens.
"""

from __future__ import annotations

import asyncio
from typing import Any


class Mailbox:
    """Carries messages to the driver, and its wish to stop back. Lives beside the driver."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Any] = asyncio.Queue()
        self._stop = asyncio.Event()

    async def post(self, messages: list[Any]) -> None:
        """Of a worker."""
        for message in messages:
            self._waiting.put_nowait(message)

    async def take(self) -> list[Any]:
        """Of the driver: what has come, perhaps nothing."""
        return [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]

    async def stop(self) -> None:
        """Of the driver."""
        self._stop.set()

    async def stopped(self) -> None:
        """Of a worker: returns when the driver wants to stop."""
        await self._stop.wait()
