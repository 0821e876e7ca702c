"""What a second worker adds: requests per second, and the CPU time behind each of them.

One worker on one core is compared with two workers on two: the first cores of the machine. The
generator is pinned to the last core in both cases, so where there are only two cores the second
worker shares its core with the generator and the first one alone does not. One worker that may use
all cores is measured, too. CPU time tells what the sharing costs: with a core for each, N workers
serve N times what one does, less what a request costs more than with one worker alone. That is
`derived`, an upper bound: writers of one SQLite file wait for each other whatever the cores do,
which is why all are measured with a store of one file and one of several. `a_second` and `ratio`
are what was measured, in turns, so that a machine that changes its speed does so for all of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from tests.serving.serving_process import ServeProcess

CONNECTIONS = 64
FILES = 2  # as many as workers
ROUNDS = 3  # of each form and kind of requests, in turns


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
    run: Path, places: dict[int, Path], kinds: dict[str, list[Any]], args: argparse.Namespace
) -> list[dict[str, Any]]:
    """places: stores with the same users, by their number of files."""
    rows: list[dict[str, Any]] = []
    for files, place in places.items():
        rows += _taking_turns(run, files, place, kinds, args)
    return [row | compared(row, rows) for row in rows]


def _taking_turns(
    run: Path, files: int, place: Path, kinds: dict[str, list[Any]], args: argparse.Namespace
) -> list[dict[str, Any]]:
    """All forms on copies of one store; a machine that gets slower meanwhile does so for all."""
    forms = dict.fromkeys([(1, 1), (1, len(os.sched_getaffinity(0))), (2, 2)])
    with ExitStack() as ended:
        servers = {form: _started(run, place, *form, args, ended) for form in forms}
        sums = {(form, kind): Counter[str]() for kind in kinds for form in forms}
        turns = product(range(ROUNDS), kinds, forms)
        for number, (_, kind, form) in enumerate(turns, 1 + ROUNDS * len(sums) * files):
            sums[form, kind] += _load(servers[form], kinds[kind], number, args)
    return [_row(files, *form, kind, total) for (form, kind), total in sums.items()]


def _started(
    run: Path, place: Path, workers: int, cores: int, args: argparse.Namespace, ended: ExitStack
) -> tuple[int, int]:
    """Its process id and port."""
    from benchmarks.serving import KEEP

    own = place.with_name(f"{workers}-{cores}-{place.name}")
    (shutil.copytree if place.is_dir() else shutil.copyfile)(place, own)
    server = ServeProcess(
        run, str(own), "--keep-events", str(KEEP), "--timeout", "600", "--workers", str(workers),
        "--threads", str(args.threads),
    )  # fmt: skip
    ended.callback(lambda: server.process and server.end())
    with on_cores(cores):
        port = int(server.start().rsplit(":", 1)[1])
    assert server.process is not None
    return server.process.pid, port


def _load(
    server: tuple[int, int], requests: list[Any], number: int, args: argparse.Namespace
) -> Counter[str]:
    from benchmarks.serving import generated

    process, port = server
    before = cpu_seconds(process)
    found = generated({
        "port": port, "connections": CONNECTIONS, "seconds": args.seconds / ROUNDS,
        "most": 10**9, "requests": requests, "first": number * 10**14,
    })  # fmt: skip
    return Counter({
        "requests": found["all"]["requests"], "seconds": found["seconds"],
        "server": cpu_seconds(process) - before, "generator": found["cpu_seconds"],
    })  # fmt: skip


def _row(files: int, workers: int, cores: int, kind: str, total: Counter[str]) -> dict[str, Any]:
    count = total["requests"]
    row = {
        "files": files, "workers": workers, "cores": cores, "kind": kind,
        "connections": CONNECTIONS, "a_second": round(count / total["seconds"], 1),
        "server_cpu_ms": round(total["server"] / count * 1000, 4),
        "generator_cpu_ms": round(total["generator"] / count * 1000, 4),
    }  # fmt: skip
    print(row)
    return row


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
