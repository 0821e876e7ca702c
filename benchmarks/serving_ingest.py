"""How fast `linrec ingest` brings a file of JSON lines into SQLite.

    python -m benchmarks.serving_ingest

Generates events of users drawn at random, each with an id, and reads them in batches of 50,000, one
commit (`synchronous=FULL`) each: events only, as the command does unless told, again with every id
known already, and with the states of all users brought up to date by each batch. Lines are read,
parsed and checked as the command does. Writes results/benchmarks/serving-ingest.json and the table
of docs/serving.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from benchmarks.environment import environment
from benchmarks.results import OUT_FOLDER, between, where, write_json
from benchmarks.serving import PAGE, SIZE, catalogue
from linrec.files.atomic import write_text
from linrec.serving import open_store
from linrec.serving.ingest_settings import IngestSettings
from linrec.serving.ingesting import Ingest
from linrec.serving.model import ServedModel
from linrec.serving.sources import open_source
from tests.serving.cases import make_run

OUT = OUT_FOLDER / "serving-ingest.json"


def write_events(path: Path, events: int, users: int, items: int) -> None:
    rng = np.random.default_rng(0)
    pairs = zip(
        rng.integers(0, users, events).tolist(), rng.integers(0, items, events).tolist(),
        strict=True,
    )  # fmt: skip
    with path.open("w") as out:
        for at, (user, item) in enumerate(pairs):
            event = {"user": f"user-{user}", "item": f"item-{item}", "time": 1.6e9 + at}
            out.write(json.dumps(event | {"id": f"event-{at}"}) + "\n")


def ingested(
    file: Path, place: Path, what: str, model: ServedModel | None = None
) -> dict[str, Any]:
    store = open_store(str(place))
    ingest = Ingest(store, IngestSettings(states="later" if model is None else "now"), model)
    begin, begin_cpu = perf_counter(), process_time()
    done = ingest.run(open_source(str(file), store, restart=True, until_empty=True))
    seconds, cpu = perf_counter() - begin, process_time() - begin_cpu
    store.close()
    events = done.stored + done.duplicates
    return {
        "what": what, "events": events, "stored": done.stored, "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2), "a_second": round(events / seconds),
    }  # fmt: skip


def measured(folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    many, few = folder / "events.jsonl", folder / "fewer.jsonl"
    write_events(many, args.events, args.users, args.items)
    write_events(few, args.events // 10, args.users // 10, args.items)
    model = ServedModel(make_run(folder / "run", catalogue(args.items), **SIZE))
    rows = []
    for file, place, what, read_by in (
        (many, "a.sqlite", "events only", None),
        (many, "a.sqlite", "again, all ids known", None),
        (few, "b.sqlite", "with states (`--states now`)", model),
    ):
        rows.append(ingested(file, folder / place, what, read_by))
        print(rows[-1], flush=True)
    return rows


def table(outcome: dict[str, Any]) -> str:
    lines = ["| into SQLite | events | events/s |", "|---|---|---|"]
    lines += [
        f"| {row['what']} | {row['events']:,} | {row['a_second']:,} |" for row in outcome["rows"]
    ]
    return "\n".join([*lines, "", where(outcome)]) + "\n"


def rendered(page: str) -> str:
    return between(page, "ingest", table(json.loads(OUT.read_text("utf-8"))))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: temporary")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        rows = measured(Path(folder), args)
    command = "python -m benchmarks.serving_ingest " + " ".join(sys.argv[1:])
    write_json(args.out, {"command": command, **environment(), "rows": rows})
    print(f"wrote {args.out}")
    if args.out == OUT:
        write_text(PAGE, rendered(PAGE.read_text("utf-8")))


if __name__ == "__main__":
    main()
