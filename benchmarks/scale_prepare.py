"""How long `linrec prepare` takes in one process, and with one and two workers of Ray.

    python -m benchmarks.scale_prepare                         # 10 M events
    python -m benchmarks.scale_prepare --events 100_000_000 --workers 2

The log is that of benchmarks.prepare. Every process has one thread. Of the engine's workers the
peak memory is read while they live. `seconds` are those of the command without imports;
`seconds_of_tasks` those from the first finished task on, without the start of Ray and its workers.
Writes results/benchmarks/scale-prepare.json, where a row replaces the one of the same events and
workers (0 is a single process), and the table of docs/scale.md. Run it while nothing else runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT, environment
from benchmarks.prepare import generate
from benchmarks.results import OUT_FOLDER, between, with_row

OUT, PAGE = OUT_FOLDER / "scale-prepare.json", ROOT / "docs" / "scale.md"
COMMAND = "python -m benchmarks.scale_prepare"

_PREPARE = """
import json, sys, threading, time
from pathlib import Path
from benchmarks.memory import peak_mb
from linrec.cluster.options import EngineOptions
from linrec.data.preparing.divided.driver import prepare_divided
from linrec.data.preparing.options import PrepareOptions
from linrec.data.preparing.prepare import prepare
from linrec.data.reading.events import files_of

source, out, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
peaks, stages, done = {}, [], threading.Event()

def watch():
    while not done.wait(0.2):
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if (path / "cmdline").read_bytes().startswith(b"ray::RayWorker"):
                    lines = (path / "status").read_text().splitlines()
                    peak = next(float(l.split()[1]) / 1024 for l in lines if l.startswith("VmHWM"))
                    peaks[path.name] = peak
            except (OSError, StopIteration):
                pass

def progress(stage, number, of):
    stages.append((stage, time.perf_counter()))

began = time.perf_counter()
if workers:
    threading.Thread(target=watch, daemon=True).start()
    options = PrepareOptions()
    engine = EngineOptions(engine="ray", workers=workers)
    store = prepare_divided(
        files_of(source, options.reading), out, options, engine, progress=progress
    )
else:
    store = prepare(source, out)
ended = time.perf_counter()
done.set()
lasted, last = {}, stages[0][1] if stages else ended
for stage, at in stages:
    lasted[stage] = round(lasted.get(stage, 0.0) + at - last, 2)
    last = at
print(json.dumps({
    "seconds": round(ended - began, 2),
    "seconds_of_tasks": round(ended - stages[0][1], 2) if stages else round(ended - began, 2),
    "stages": lasted,
    "peak_mb": round(peak_mb()),
    "worker_peak_mb": sorted(round(peak) for peak in peaks.values()),
    "users": store.n_users, "items": store.n_items, "events": store.n_events,
    "fingerprint": store.fingerprint,
}))
"""


def main() -> None:
    args = _arguments()
    for row in measure(args)["rows"]:
        print({name: row[name] for name in ("workers", "seconds", "seconds_of_tasks", "stages")})
        with_row(args.out, COMMAND, row | environment() | {"threads": 1}, ("events", "workers"))
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """A row for each number of workers, on the same log; the datasets must be the same."""
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        log = args.log or Path(folder) / "events.parquet"
        if args.log is None:
            generate(log, args)
        rows = [_run(log, Path(folder) / f"data-{n}", n) for n in args.workers]
    if len({row["fingerprint"] for row in rows}) > 1:
        raise SystemExit("the datasets differ")
    return {"command": COMMAND, "rows": rows}


def _run(log: Path, out: Path, workers: int) -> dict[str, Any]:
    command = [sys.executable, "-c", _PREPARE, str(log), str(out), str(workers)]
    one = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | one, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"prepare failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"workers": workers, "parquet_mb": round(log.stat().st_size / 1e6, 1)} | found


# ----------------------------------------------------------------------------------------- table


def rendered(page: str) -> str:
    """docs/scale.md with the table between its markers replaced."""
    return between(page, "scale-prepare", table(json.loads(OUT.read_text("utf-8"))["rows"]))


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| events | workers | s | without the start of Ray | MB in a worker | MB in the command |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        workers = str(row["workers"]) if row["workers"] else "a single process"
        most = f"{max(row['worker_peak_mb']):,}" if row["worker_peak_mb"] else ""
        lines.append(
            f"| {row['events']:,} | {workers} | {row['seconds']:.1f} "
            f"| {row['seconds_of_tasks']:.1f} | {most} | {row['peak_mb']:,} |"
        )
    words = [*_faster(rows), *dict.fromkeys(_where(row) for row in rows)]
    return "\n".join([*lines, "", " ".join(words), ""])


def _faster(rows: list[dict[str, Any]]) -> list[str]:
    """Two workers against one, for each log."""
    of = {(row["events"], row["workers"]): row for row in rows}
    texts = []
    for events in sorted({row["events"] for row in rows}):
        one, two = of.get((events, 1)), of.get((events, 2))
        if one is not None and two is not None:
            whole, tasks = (one[name] / two[name] for name in ("seconds", "seconds_of_tasks"))
            texts.append(
                f"Of {events:,} events, two workers are {whole:.2f} times as fast as one, and "
                f"{tasks:.2f} times without the start of Ray."
            )
    return texts


def _where(row: dict[str, Any]) -> str:
    return f"{row['machine']}, {row['date']}, commit {row['commit']}."


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--log", type=Path, help="a log that was generated before")
    parser.add_argument("--folder", type=Path, help="folder of the log and of what is made of it")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.set_defaults(text_ids=False)
    return parser.parse_args()


if __name__ == "__main__":
    main()
