"""The load generator: some connections that ask as fast as they are answered, for a while.

Reads a plan from standard input (JSON) and writes what it measured to standard output:
    {"port": 8000, "connections": 8, "seconds": 5, "most": 100000, "requests": [["/v1/events", {...}], ...]}
Connections take turns through the requests. "{n}" in a body becomes a number never used before.
"""  # noqa: E501

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from time import perf_counter
from typing import Any

import numpy as np

with contextlib.suppress(ImportError):
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

WARM_UP = 20  # requests of each kind that are not counted


async def load(plan: dict[str, Any]) -> dict[str, Any]:
    turn, number = itertools.count(), itertools.count(int(plan.get("first", 0)))
    requests = [(path, json.dumps(body)) for path, body in plan["requests"]]
    times: list[list[float]] = [[] for _ in requests]
    failed = 0
    begin = perf_counter()
    until = begin + plan["seconds"]

    async def connection() -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection("127.0.0.1", plan["port"])
        while perf_counter() < until:
            at = next(turn)
            if at >= plan["most"]:
                break
            path, body = requests[at % len(requests)]
            content = body.replace("{n}", str(next(number))).encode()
            sent = perf_counter()
            writer.write(head(path, content) + content)
            ok = await answered(reader)
            times[at % len(requests)].append(perf_counter() - sent)
            failed += not ok
        writer.close()

    await asyncio.gather(*(connection() for _ in range(plan["connections"])))
    return {
        "seconds": perf_counter() - begin,
        "failed": failed,
        "all": summary(list(itertools.chain.from_iterable(times))),
        "each": [summary(some) for some in times],
    }


def head(path: str, content: bytes) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    ).encode()


async def answered(reader: asyncio.StreamReader) -> bool:
    top = await reader.readuntil(b"\r\n\r\n")
    lines = top.lower().split(b"\r\n")
    length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
    await reader.readexactly(length)
    return b" 200 " in lines[0]


def summary(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {"requests": 0, "p50_ms": 0.0, "p99_ms": 0.0}
    counted = np.array(seconds[WARM_UP:] if len(seconds) > 2 * WARM_UP else seconds) * 1000
    return {
        "requests": len(seconds),
        "p50_ms": round(float(np.percentile(counted, 50)), 3),
        "p99_ms": round(float(np.percentile(counted, 99)), 3),
    }


if __name__ == "__main__":
    json.dump(asyncio.run(load(json.load(sys.stdin))), sys.stdout)
