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
import sys
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

with contextlib.suppress(ImportError):
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

WARM_UP = 20  # requests of each kind that are not counted


async def load(plan: dict[str, Any]) -> dict[str, Any]:
    turn, number = itertools.count(), itertools.count(int(plan.get("first", 0)))
    requests = [(path, json.dumps(body)) for path, body in plan["requests"]]
    times: list[list[float]] = [[] for _ in requests]
    samples: list[tuple[int, Any]] = []
    every = round(1 / plan["sample"]) if plan.get("sample") else 0
    failed = 0
    if "core" in plan:
        os.sched_setaffinity(0, [plan["core"]])
    begin, begin_cpu = perf_counter(), process_time()
    until, rate = begin + plan["seconds"], plan.get("rate")

    async def connection() -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection("127.0.0.1", plan["port"])
        while True:
            at = next(turn)
            due = perf_counter() if rate is None else begin + at / rate
            if at >= plan["most"] or due >= until:
                break
            if due > perf_counter():
                await asyncio.sleep(due - perf_counter())
            path, body = requests[at % len(requests)]
            content = body.replace("{n}", str(next(number))).encode()
            writer.write(head(path, content) + content)
            ok, answer = await answered(reader)
            times[at % len(requests)].append(perf_counter() - due)
            failed += not ok
            if every and at % every == 0:
                samples.append((at % len(requests), json.loads(answer)))
        writer.close()

    await asyncio.gather(*(connection() for _ in range(plan["connections"])))
    return {
        "seconds": perf_counter() - begin,
        "failed": failed,
        "all": summary(list(itertools.chain.from_iterable(times))),
        "each": [summary(some) for some in times],
        "samples": samples,
        "cpu_seconds": process_time() - begin_cpu,
    }


def head(path: str, content: bytes) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    ).encode()


async def answered(reader: asyncio.StreamReader) -> tuple[bool, bytes]:
    """Whether it is a success, and its body."""
    top = await reader.readuntil(b"\r\n\r\n")
    lines = top.lower().split(b"\r\n")
    length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
    return b" 200 " in lines[0], await reader.readexactly(length)


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
