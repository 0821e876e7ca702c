"""How many events per second `linrec prepare` takes in, and the memory it needs for them.

    python -m benchmarks.prepare --events 100_000_000    # 100 M events
    python -m benchmarks.prepare --text-ids              # 10 M events, ids as strings

The log is drawn by a seed: Parquet in several row groups, items by Zipf's law, lognormal users,
and times in random order, the worst case for sorting. `prepare` runs in its own process, whose
peak memory is measured. Writes results/benchmarks/prepare.json, where a run replaces the row
of the same size, and the table of docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.environment import ROOT, environment
from benchmarks.peers import page
from benchmarks.results import OUT_FOLDER, with_row

OUT = OUT_FOLDER / "prepare.json"
CHUNK = 4_000_000
FIRST, SPAN = 1_600_000_000, 4 * 365 * 86_400  # seconds since 1970

_PREPARE = """
import json, sys, time
from benchmarks.memory import peak_mb
from linrec.data.preparing.prepare import prepare
before, began = peak_mb(), time.perf_counter()
store = prepare(sys.argv[1], sys.argv[2])
print(json.dumps({
    "seconds": time.perf_counter() - began,
    "cpu_seconds": time.process_time(),
    "peak_mb": peak_mb(),
    "mb_before": before,
    "users": store.n_users, "items": store.n_items, "events": store.n_events,
}))
"""


def main() -> None:
    args = _arguments()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        log = Path(folder) / "events.parquet"
        began = time.perf_counter()
        generate(log, args)
        print(f"drew {args.events:,} events in {time.perf_counter() - began:.0f} s", flush=True)
        row = measured(log, Path(folder) / "data") | {"text_ids": args.text_ids}
    print(sentence(row))
    same = ("events", "text_ids")
    with_row(args.out, "python -m benchmarks.prepare", row | environment(), same)
    if args.out == OUT:
        page.write()


def measured(log: Path, out: Path) -> dict[str, Any]:
    command = [sys.executable, "-c", _PREPARE, str(log), str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"prepare failed:\n{done.stderr[-3000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        "events": found["events"],
        "users": found["users"],
        "items": found["items"],
        "parquet_mb": round(log.stat().st_size / 1e6, 1),
        "seconds": round(found["seconds"], 2),
        "cpu_seconds": round(found["cpu_seconds"], 2),
        "events_a_second": round(found["events"] / found["seconds"]),
        "peak_mb": round(found["peak_mb"]),
        "peak_bytes_an_event": round(
            (found["peak_mb"] - found["mb_before"]) * 2**20 / found["events"], 1
        ),
    }


def sentence(row: dict[str, Any]) -> str:
    return (
        f"{row['events']:,} events of {row['users']:,} users and {row['items']:,} items:"
        f" {row['seconds']} s, {row['events_a_second']:,} events/s, peak {row['peak_mb']:,} MB"
        f" ({row['peak_bytes_an_event']} bytes per event)"
    )


def generate(path: Path, args: argparse.Namespace) -> None:
    """Write the log chunk by chunk, so that drawing it needs no more memory than reading it."""
    rng = np.random.default_rng(args.seed)
    users = _ends(rng.lognormal(0.0, 1.0, args.users))
    items = _ends(1.0 / np.arange(1, args.items + 1))
    kinds = pa.string() if args.text_ids else pa.uint32()
    schema = pa.schema([("user", kinds), ("item", kinds), ("timestamp", pa.int64())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, args.events, CHUNK):
            count = min(CHUNK, args.events - start)
            columns = {
                "user": _ids(_drawn(users, count, rng), "user", args.text_ids),
                "item": _ids(_drawn(items, count, rng), "item", args.text_ids),
                "timestamp": pa.array(FIRST + rng.integers(0, SPAN, count)),
            }
            writer.write_table(pa.table(columns, schema=schema), row_group_size=1_000_000)


def _ends(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    cumulated = np.cumsum(weights)
    return cumulated / cumulated[-1]


def _drawn(ends: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.uint32]:
    # sorted numbers walk through the ends once; the permutation makes the order random again
    found = np.searchsorted(ends, np.sort(rng.random(count)), side="right").astype(np.uint32)
    return rng.permutation(np.minimum(found, len(ends) - 1))


def _ids(numbers: NDArray[np.uint32], role: str, text: bool) -> pa.Array:
    if not text:
        return pa.array(numbers)
    return pc.binary_join_element_wise(role, pc.cast(pa.array(numbers), pa.string()), "-")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument(
        "--text-ids", action="store_true", help="ids as strings instead of integers"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder", type=Path, help="folder of the generated log (the system's temporary folder)"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
