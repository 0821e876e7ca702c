"""Bounds on what a connection may cost before anything is known about the client.

uvicorn's parser keeps headers of any size, and waits for the first byte as long as the client
likes; the limits here hold before any token can be checked.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import TimerHandle, Transport
from collections import Counter
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from linrec.serving.http.browsers import SECURITY_HEADERS
from linrec.serving.http.options import HttpOptions

RETRY_AFTER = "1"  # seconds
MAX_UNSENT = 65_536  # bytes that wait for the end of a turn of the loop


class Connections:
    """How many are open, in total and per address."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._open: Counter[str] = Counter()

    def admit(self, address: str) -> bool:
        per_address = self._options.max_connections_per_address
        if self._open.total() >= self._options.max_connections or (
            self._open[address] >= per_address
        ):
            return False
        self._open[address] += 1
        return True

    def release(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class OneWrite:
    """A transport that sends together what is written in one turn of the loop.

    uvicorn writes the head of a response and its body one after the other, and a call of the system
    for each, with a packet of its own, is a tenth of what a request costs.
    """

    def __init__(self, transport: Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._unsent = bytearray()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent += data
        if len(self._unsent) > MAX_UNSENT:  # the transport is to say when it is too much
            self._send()

    def _send(self) -> None:
        content, self._unsent = bytes(self._unsent), bytearray()
        if content and not self._transport.is_closing():
            self._transport.write(content)

    def close(self) -> None:
        self._send()
        self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with bounds on headers, silence and the number of connections."""

    options: HttpOptions
    open_connections: Connections

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._admitted: str | None = None  # the address this connection counts for
        self._reading_head, self._head_bytes = True, 0
        self._head_timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None
        self._refusal: tuple[int, str] | None = None  # why parsing was stopped

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]
        address = self.client[0] if self.client else ""
        if self.open_connections.admit(address):
            self._admitted = address
            self._start_head_timer()
        else:
            self._refuse(503, "too many connections are open; try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        if self._admitted is not None:
            self.open_connections.release(self._admitted)
            self._admitted = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._head_bytes += len(data) if self._reading_head else 0
        super().data_received(data)
        if self._reading_head and self._head_bytes and not self.transport.is_closing():
            if self._head_bytes > self.options.max_header_bytes:
                self._refuse(*self._too_large())
            elif self._head_timer is None:
                self._start_head_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > self.options.max_headers:
            self._stop(431, f"a request may have {self.options.max_headers} headers at most")

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.options.max_header_bytes:
            self._stop(*self._too_large())
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self._reading_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._reading_head = True
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.options.idle_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn when the parser stops."""
        del msg
        self._refuse(*(self._refusal or (400, "this is not an HTTP request")))

    def _too_large(self) -> tuple[int, str]:
        return 431, f"headers may have {self.options.max_header_bytes:,} bytes at most"

    def _stop(self, status: int, sentence: str) -> None:
        """Out of a callback of the parser, which then calls `send_400_response`."""
        self._refusal = (status, sentence)
        raise ValueError(sentence)

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.options.head_timeout, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._start_head_timer()  # an earlier request is still being processed
        elif not self.transport.is_closing():
            self._refuse(408, "the request did not arrive in time; send it again")

    def _refuse(self, status: int, sentence: str) -> None:
        body = json.dumps({"error": sentence}).encode()
        head = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
            *(f"{name}: {value}" for name, value in SECURITY_HEADERS.items()),
        ]
        if status == 503:
            head.append(f"retry-after: {RETRY_AFTER}")
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.transport.close()


def bounded_protocol(options: HttpOptions) -> type[asyncio.Protocol]:
    """A protocol class for one server; its connections are counted together."""
    shared = {"options": options, "open_connections": Connections(options)}
    return type("ServerProtocol", (BoundedProtocol,), shared)
