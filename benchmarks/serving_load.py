"""The load generator: some connections that ask as fast as they are answered, or at a fixed rate.

Reads a plan from standard input (JSON) and writes what it measured to standard output:
    {"port": 8000, "connections": 8, "seconds": 5, "most": 100000, "requests": [["/v1/events", {...}], ...]}
Connections take turns through the requests. "{n}" in a body becomes a number never used before.
With "rate" (requests a second) a request is due at a fixed time whether or not earlier ones were
answered, and its latency counts from then, so that a stall is not hidden by clients that wait.
"sample" is the share of answers to return, each with the position of its request; "core" is where
the generator runs.
"""  # noqa: E501

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import os
import re
import sys
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

with contextlib.suppress(ImportError):
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

WARM_UP = 20  # requests of each kind that are not counted
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


class Load:
    """The requests of a plan, their order, and what came of them."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.requests = [(path, json.dumps(body)) for path, body in plan["requests"]]
        self.times: list[list[float]] = [[] for _ in self.requests]
        self.samples: list[tuple[int, Any]] = []
        self.failed = 0
        self._every = round(1 / plan["sample"]) if plan.get("sample") else 0
        self._turn, self._number = itertools.count(), itertools.count(int(plan.get("first", 0)))
        self._most, self._rate, self.begin = plan["most"], plan.get("rate"), perf_counter()
        self._until = self.begin + plan["seconds"]

    def due(self) -> tuple[int, float] | None:
        """The next request and its time; None at the end."""
        at = next(self._turn)
        when = perf_counter() if self._rate is None else self.begin + at / self._rate
        return None if at >= self._most or when >= self._until else (at, when)

    def content(self, at: int) -> bytes:
        path, body = self.requests[at % len(self.requests)]
        content = body.replace("{n}", str(next(self._number))).encode()
        return head(path, content) + content

    def answered(self, at: int, due: float, status: bytes, body: bytes) -> None:
        self.times[at % len(self.times)].append(perf_counter() - due)
        self.failed += status != b"200"
        if self._every and at % self._every == 0:
            self.samples.append((at % len(self.requests), json.loads(body)))


class Connection(asyncio.Protocol):
    """One request after the other.

    A protocol costs half of what a pair of streams does, and what the generator takes is taken from
    the server where they share cores.
    """

    def __init__(self, load: Load) -> None:
        self._load, self._loop = load, asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._read = bytearray()
        self._timer: asyncio.TimerHandle | None = None  # of a request that is not due yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport  # uvloop's is no asyncio.Transport, but has its methods
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fail(exc or ConnectionError("the server closed a connection"))

    def _fail(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)

    def _next(self) -> None:
        found = self._load.due()
        if found is None:
            self.ended.set_result(None)
            self._transport.close()
            return
        self._at, self._due = found
        wait = self._due - perf_counter()
        if wait > 0:
            self._timer = self._loop.call_later(wait, self._send)
        else:
            self._send()

    def _send(self) -> None:
        self._transport.write(self._load.content(self._at))

    def data_received(self, data: bytes) -> None:
        self._read += data
        end = self._read.find(b"\r\n\r\n") + 4
        if end < 4:
            return
        found = LENGTH.search(self._read, 0, end)
        if found is None:
            self._fail(ValueError("a response without its length"))
            self._transport.abort()
            return
        size = end + int(found[1])
        if len(self._read) < size:
            return
        status, body = bytes(self._read[9:12]), bytes(self._read[end:size])
        self._read.clear()
        self._load.answered(self._at, self._due, status, body)
        self._next()


async def load(plan: dict[str, Any]) -> dict[str, Any]:
    if "core" in plan:
        os.sched_setaffinity(0, [plan["core"]])
    begin_cpu, loop = process_time(), asyncio.get_running_loop()
    made = Load(plan)
    opened = [
        await loop.create_connection(lambda: Connection(made), "127.0.0.1", plan["port"])
        for _ in range(plan["connections"])
    ]
    await asyncio.gather(*(connection.ended for _, connection in opened))
    return {
        "seconds": perf_counter() - made.begin,
        "failed": made.failed,
        "all": summary(list(itertools.chain.from_iterable(made.times))),
        "each": [summary(some) for some in made.times],
        "samples": made.samples,
        "cpu_seconds": process_time() - begin_cpu,
    }


def head(path: str, content: bytes) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    ).encode()


def summary(seconds: list[float]) -> dict[str, Any]:
    if not seconds:
        return {"requests": 0, "p50_ms": 0.0, "p99_ms": 0.0, "p99_95_ms": [0.0, 0.0]}
    counted = np.array(seconds[WARM_UP:] if len(seconds) > 2 * WARM_UP else seconds) * 1000
    return {
        "requests": len(seconds),
        "p50_ms": round(float(np.percentile(counted, 50)), 3),
        "p99_ms": round(float(np.percentile(counted, 99)), 3),
        "p99_95_ms": interval(np.sort(counted), 0.99),
    }


def interval(ordered: NDArray[np.float64], share: float) -> list[float]:
    """Where the quantile lies with 95 %: how many values are below it is binomial."""
    middle, width = share * len(ordered), 1.96 * math.sqrt(share * (1 - share) * len(ordered))
    ranks = (math.floor(middle - width), math.ceil(middle + width))
    return [round(float(ordered[min(max(rank, 0), len(ordered) - 1)]), 3) for rank in ranks]


if __name__ == "__main__":
    json.dump(asyncio.run(load(json.load(sys.stdin))), sys.stdout)
