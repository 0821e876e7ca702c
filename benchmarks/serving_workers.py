"""What a second worker adds: requests per second, and the CPU time behind each of them.

Two workers and the generator share the cores of the machine, so where there are only two cores the
rate of two workers is not what they could do. CPU time tells that apart: with a core for each, N
workers serve N times what one does, less what a request costs more than with one worker alone. That
is `derived`, an upper bound: writers of one SQLite file wait for each other whatever the cores do,
which is why both are measured with a store of one file and one of several. `a_second` and `ratio`
are what was measured. The generator is pinned to the last core, servers may use all.
"""

from __future__ import annotations

import argparse
import os
from itertools import product
from pathlib import Path
from typing import Any

from tests.serving.serving_process import ServeProcess

CONNECTIONS = 64
FILES = 2  # as many as workers


def cpu_seconds(process: int) -> float:
    """Of a process and all it started, so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    tasks = Path(f"/proc/{process}/task").iterdir()
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    return own + sum(cpu_seconds(int(child)) for child in children)


def measure(
    run: Path, places: dict[int, str], kinds: dict[str, list[Any]], args: argparse.Namespace
) -> list[dict[str, Any]]:
    """places: stores with the same users, by their number of files."""
    from benchmarks.serving import KEEP, generated

    rows: list[dict[str, Any]] = []
    for (files, place), workers in product(places.items(), (1, 2)):
        options = ["--keep-events", str(KEEP), "--timeout", "600", "--workers", str(workers),
                   "--threads", str(args.threads)]  # fmt: skip
        server = ServeProcess(run, place, *options)
        port = int(server.start().rsplit(":", 1)[1])
        assert server.process is not None
        try:
            for kind, requests in kinds.items():
                plan = {
                    "port": port, "connections": CONNECTIONS, "seconds": args.seconds,
                    "most": 10**9, "requests": requests, "first": (len(rows) + 1) * 10**14,
                }  # fmt: skip
                before = cpu_seconds(server.process.pid)
                found = generated(plan)
                used, count = cpu_seconds(server.process.pid) - before, found["all"]["requests"]
                rows.append({
                    "files": files, "workers": workers, "kind": kind,
                    "connections": CONNECTIONS,
                    "a_second": round(count / found["seconds"], 1),
                    "server_cpu_ms": round(used / count * 1000, 4),
                    "generator_cpu_ms": round(found["cpu_seconds"] / count * 1000, 4),
                })  # fmt: skip
                print(rows[-1])
        finally:
            server.end()
    return [row | compared(row, rows) for row in rows]


def compared(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, float]:
    """Times one worker's rate: as measured, and if every worker had a core of its own."""
    alone = next(
        each
        for each in rows
        if (each["kind"], each["files"], each["workers"]) == (row["kind"], row["files"], 1)
    )
    bound = row["workers"] * alone["server_cpu_ms"] / row["server_cpu_ms"]
    return {"ratio": round(row["a_second"] / alone["a_second"], 2), "derived": round(bound, 2)}


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"Workers, {CONNECTIONS} connections, generator pinned to the last core, which the workers "
        "use too. The upper bound is what CPU time per request allows with a core for each worker; "
        "writers of one SQLite file wait for each other too:", "",
        "| requests | files | workers | a second | of one worker | server CPU ms "
        "| generator CPU ms | upper bound |",
        "|" + "---|" * 8,
    ]  # fmt: skip
    return lines + [
        f"| {row['kind']} | {row['files']} | {row['workers']} | {row['a_second']:,.0f} "
        f"| {row['ratio']:.2f} x | {row['server_cpu_ms']:.3f} | {row['generator_cpu_ms']:.3f} "
        f"| {row['derived']:.2f} x |"
        for row in rows
    ]
