"""What a second worker adds: requests per second, and the CPU time behind each of them.

One worker on one core is compared with two workers on two: the first cores of the machine. The
generator is pinned to the last core in both cases, so where there are only two cores the second
worker shares its core with the generator and the first one alone does not. One worker that may use
all cores is measured, too. CPU time tells what the sharing costs: with a core for each, N workers
serve N times what one does, less what a request costs more than with one worker alone. That is
`derived`, an upper bound: writers of one SQLite file wait for each other whatever the cores do,
which is why all are measured with a store of one file and one of several. `a_second` and `ratio`
are what was measured.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """What is started meanwhile has the first of this process's cores, and stays there."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_cores)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def measure(
    run: Path, places: dict[int, str], kinds: dict[str, list[Any]], args: argparse.Namespace
) -> list[dict[str, Any]]:
    """places: stores with the same users, by their number of files."""
    from benchmarks.serving import KEEP, generated

    rows: list[dict[str, Any]] = []
    forms = dict.fromkeys([(1, 1), (1, len(os.sched_getaffinity(0))), (2, 2)])
    for (files, place), (workers, cores) in product(places.items(), forms):
        options = ["--keep-events", str(KEEP), "--timeout", "600", "--workers", str(workers),
                   "--threads", str(args.threads)]  # fmt: skip
        server = ServeProcess(run, place, *options)
        with on_cores(cores):
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
                    "files": files, "workers": workers, "cores": cores, "kind": kind,
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
    """Times the rate of one worker on one core: measured, and if nobody else used the cores."""
    same = [each for each in rows if (each["kind"], each["files"]) == (row["kind"], row["files"])]
    alone = next(each for each in same if (each["workers"], each["cores"]) == (1, 1))
    bound = row["workers"] * alone["server_cpu_ms"] / row["server_cpu_ms"]
    return {"ratio": round(row["a_second"] / alone["a_second"], 2), "derived": round(bound, 2)}


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"Workers, {CONNECTIONS} connections. The server may use that many cores, the first ones; "
        "the generator is pinned to the last core, alone or beside a worker. Compared with one "
        "worker on one core. The upper bound is what CPU time per request allows if nobody else "
        "uses the workers' cores; writers of one SQLite file wait for each other too:", "",
        "| requests | files | workers | cores | a second | of one worker | server CPU ms "
        "| generator CPU ms | upper bound |",
        "|" + "---|" * 9,
    ]  # fmt: skip
    return lines + [
        f"| {row['kind']} | {row['files']} | {row['workers']} | {row['cores']} "
        f"| {row['a_second']:,.0f} | {row['ratio']:.2f} x | {row['server_cpu_ms']:.3f} "
        f"| {row['generator_cpu_ms']:.3f} | {row['derived']:.2f} x |"
        for row in rows
    ]
