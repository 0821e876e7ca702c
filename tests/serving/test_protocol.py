"""What is written in one turn of the loop is sent together."""

from __future__ import annotations

import asyncio
from typing import Any

from linrec.serving.http.protocol import MAX_UNSENT, OneWrite


class Sent:
    """A transport that remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.calls.append("close")

    def is_closing(self) -> bool:
        return "close" in self.calls

    def get_extra_info(self, name: str) -> str:
        return name


def after(*steps: Any) -> list[bytes | str]:
    """What is sent by steps, each in a turn of its own."""

    async def sent() -> list[bytes | str]:
        transport = Sent()
        made = OneWrite(transport, asyncio.get_running_loop())  # type: ignore[arg-type]
        assert made.get_extra_info("peername") == "peername"
        for step in steps:
            step(made)
            await asyncio.sleep(0)
        return transport.calls

    return asyncio.run(sent())


def response(transport: OneWrite) -> None:
    transport.write(b"head, ")
    transport.write(b"body")


def test_head_and_body_are_sent_together() -> None:
    assert after(response, lambda _: None, response) == [b"head, body", b"head, body"]


def test_closing_sends_what_waits_and_nothing_later() -> None:
    def closed(transport: OneWrite) -> None:
        response(transport)
        transport.close()

    assert after(closed, response) == [b"head, body", "close"]


def test_what_is_large_does_not_wait() -> None:
    def large(transport: OneWrite) -> None:
        transport.write(b"head")
        transport.write(bytes(MAX_UNSENT))
        assert transport._transport.calls == [b"head" + bytes(MAX_UNSENT)]  # type: ignore[attr-defined]
        transport.write(b"more")

    assert after(large)[1:] == [b"more"]
