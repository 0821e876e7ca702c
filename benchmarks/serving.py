"""Load and latency of `linrec serve`, and what an approximate index finds.

    python -m benchmarks.serving

Starts servers of their own on loopback and a load generator in another process. Models have the
default size and weights that were drawn, not learned: neither changes what an answer costs. Parts,
which may be measured one by one (`--parts`; the others stay as they are in the results):

- load: requests a second and latency at several numbers of connections, then latency at 70 % of
  what that number of connections reached, each request at its fixed time, with a sample of the
  lists compared with offline ones (benchmarks.serving_open_loop);
- workers: what a second one adds (benchmarks.serving_workers);
- history: latency against the length of the history, with a state that is advanced and with a model
  that re-encodes (the same one trained on last-position, which reads both ways), lengths in turns;
- engine: benchmarks.serving_engine; ann: recall of the index against exact lists.

The generator is pinned to the last core. Run it while nothing else runs. Writes
results/benchmarks/serving.json and serving.png, and the tables of docs/serving.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl
import torch

from benchmarks import serving_engine, serving_open_loop, serving_workers
from benchmarks.environment import ROOT, environment
from benchmarks.results import write_json
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.serving import Engine, EngineSettings, open_store
from linrec.serving.model import ServedModel
from linrec.serving.stores import Change, Event
from tests.serving.cases import make_run
from tests.serving.serving_process import ServeProcess

OUT, PAGE = ROOT / "results/benchmarks/serving.json", ROOT / "docs" / "serving.md"
BEGIN, END = "<!-- figures -->\n", "<!-- /figures -->"
SIZE: dict[str, Any] = {"width": 128, "heads": 8, "layers": 2, "inner": 256, "positions": 256}
SOME_ITEMS = 2_000  # that a user returns to, so that there is always something new to recommend
KEEP = 10_000_000  # no event is dropped while measuring
PARTS = ("engine", "load", "workers", "history", "ann")
WAYS = {"state": {}, "re-encode": {"objective": "last-position"}}


def main() -> None:
    args = _arguments()
    torch.set_num_threads(args.threads)
    about = {"command": "python -m benchmarks.serving " + " ".join(sys.argv[1:]), **environment()}
    outcome = json.loads(args.out.read_text("utf-8")) if args.out.exists() else {}
    outcome |= {"items": args.items, "threads": args.threads}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for part in args.parts:
            found = measure(part, Path(folder), args)
            outcome |= found | {"about": outcome.get("about", {}) | {part: about}}
            write_json(args.out, outcome)  # what was measured stays if a later part fails
    if "history" in outcome:
        plot(outcome["history"], args.out.with_suffix(".png"))
    print(f"wrote {args.out}")
    print(tables(outcome))
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def measure(part: str, base: Path, args: argparse.Namespace) -> dict[str, Any]:
    if part == "load":
        return load(base, args)
    work = {"engine": lambda: serving_engine.costs(args), "history": lambda: history(base, args),
            "workers": lambda: workers(base, args), "ann": lambda: ann(base, args)}  # fmt: skip
    return {part: work[part]()}


def catalogue(items: int) -> SequenceStore:
    """Every item once for each of two users, which is enough to have a catalogue."""
    names = [f"item-{number}" for number in range(items)]
    return prepare(pl.DataFrame({"user": ["a"] * items + ["b"] * items, "item": names * 2,
                                 "time": range(2 * items)}))  # fmt: skip


# ------------------------------------------------------------------------------------------ serving


@contextmanager
def served(run: Path, place: str, threads: int) -> Iterator[int]:
    """`linrec serve`; yields its port."""
    options = ["--threads", str(threads), "--keep-events", str(KEEP), "--timeout", "600"]
    server = ServeProcess(run, place, *options)
    url = server.start()
    try:
        yield int(url.rsplit(":", 1)[1])
    finally:
        server.end()


def generated(plan: dict[str, Any]) -> dict[str, Any]:
    """Run the generator, on the last core; a failed request would make its figures worthless."""
    plan = plan | {"core": (os.cpu_count() or 1) - 1}
    os.sync()  # what others have written is not to be written meanwhile
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.serving_load"], input=json.dumps(plan),
        cwd=ROOT, capture_output=True, text=True, timeout=3600, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"the load generator failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    if found["failed"]:
        raise SystemExit(f"{found['failed']} requests failed")
    return found


def event(user: str, item: str) -> tuple[str, dict[str, Any]]:
    return "/v1/events", {"user": user, "events": [{"item": item, "id": "{n}"}]}


def recommend_request(user: str) -> tuple[str, dict[str, Any]]:
    return "/v1/recommendations", {"user": user, "k": 10}


def load(base: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Many users with a hundred events each: as fast as it goes, then at a fixed rate."""
    run, place = make_run(base / "load", catalogue(args.items), **SIZE), str(base / "load.sqlite")
    kinds = requests(args)
    fill(run, place, dict.fromkeys(users(args), 100), args)
    rows = []
    with served(run, place, args.threads) as port:
        for connections in args.connections:
            for kind, some in kinds.items():
                plan = {
                    "port": port, "connections": connections, "seconds": args.seconds,
                    "most": 10**9, "requests": some, "first": len(rows) * 10**8,
                }  # fmt: skip
                found = generated(plan)
                row = {"kind": kind, "connections": connections} | found["all"]
                rows.append(row | {"a_second": round(row["requests"] / found["seconds"], 1)})
                print(rows[-1])
        open_loop = serving_open_loop.measure(run, place, port, kinds, rows, args)
    return {"load": rows, "open_loop": open_loop}


def workers(base: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The same users and requests, in a store of one file and one of several."""
    run = make_run(base / "workers", catalogue(args.items), **SIZE)
    places = {1: base / "one.sqlite", serving_workers.FILES: base / "several.users"}
    open_store(str(places[serving_workers.FILES]), serving_workers.FILES).close()
    for place in places.values():
        fill(run, str(place), dict.fromkeys(users(args), 100), args)
    return serving_workers.measure(run, places, requests(args), args)


def users(args: argparse.Namespace) -> list[str]:
    return [f"user-{n}" for n in range(args.users)]


def requests(args: argparse.Namespace) -> dict[str, list[Any]]:
    names = users(args)
    return {
        "events": [event(name, f"item-{at % args.items}") for at, name in enumerate(names)],
        "recommendations": [recommend_request(name) for name in names],
    }


def fill(run: Path, place: str, users: dict[str, int], args: argparse.Namespace) -> None:
    """Users with so many events, and their states up to date."""
    store, rng = open_store(place), np.random.default_rng(0)
    most = min(SOME_ITEMS, args.items // 2)
    for user, count in users.items():
        items = rng.integers(0, most, count).tolist()
        events = [Event(f"item-{item}", float(at)) for at, item in enumerate(items)]
        store.commit([Change(user, None, events, None, KEEP)])
    engine = Engine(run, store, EngineSettings(keep_events=KEEP))
    for user in users:
        engine.recommend(user)
    engine.close()


def history(base: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for way, settings in WAYS.items():
        lengths = [n for n in args.lengths if way == "state" or n <= args.max_encoded]
        run = make_run(base / way, catalogue(args.items), **SIZE, **settings)
        place = str(base / f"{way}.sqlite")
        fill(run, place, {f"long-{length}": length for length in lengths}, args)
        requests = [
            make for length in lengths
            for make in (event(f"long-{length}", "item-1"), recommend_request(f"long-{length}"))
        ]  # fmt: skip
        repeats = args.repeats if way == "state" else min(args.repeats, args.encoded_repeats)
        with served(run, place, args.threads) as port:
            plan = {"port": port, "connections": 1, "seconds": args.history_seconds,
                    "most": repeats * len(requests), "requests": requests}  # fmt: skip
            each = generated(plan)["each"]
        for at, length in enumerate(lengths):
            for kind, found in zip(("events", "recommendations"), each[2 * at :], strict=False):
                rows.append({"way": way, "kind": kind, "length": length} | found)
                print(rows[-1])
    return rows


# -------------------------------------------------------------------------------------- approximate


def ann(base: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Recall of the ten best against exact lists, and what a list costs either way."""
    run = args.ann_run or make_run(base / "ann", catalogue(args.ann_items), **SIZE)
    rng = np.random.default_rng(0)
    items = ServedModel(run).ids
    histories = [list(rng.choice(items, 50)) for _ in range(args.ann_users)]
    lists, times = [], []
    for settings in (EngineSettings(), EngineSettings(ann_from=1)):
        engine = Engine(run, open_store("memory"), settings)
        for number, past in enumerate(histories):
            engine.store.commit([
                Change(str(number), None, [Event(str(i), 0.0) for i in past], None, KEEP)
            ])  # fmt: skip
            engine.recommend(str(number))
        begin = perf_counter()
        found = [engine.recommend(str(number)).items for number in range(len(histories))]
        times.append((perf_counter() - begin) / len(histories) * 1000)
        lists.append([{item.item for item in best} for best in found])
        engine.close()
    hits = sum(len(exact & near) for exact, near in zip(*lists, strict=True))
    return {
        "items": len(items),
        "vectors": "drawn" if args.ann_run is None else args.ann_run.name,
        "recall_at_10": round(hits / sum(len(exact) for exact in lists[0]), 4),
        "exact_ms": round(times[0], 3),
        "ann_ms": round(times[1], 3),
    }


# -------------------------------------------------------------------------------------- the figures


def rendered(page: str) -> str:
    """docs/serving.md with the figures between its markers replaced."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + tables(json.loads(OUT.read_text("utf-8"))) + END + rest.split(END)[1]


def tables(outcome: dict[str, Any]) -> str:
    lines = [_where(outcome), ""]
    if "load" in outcome:
        lines += ["| requests | connections | a second | p50 ms | p99 ms |", "|" + "---|" * 5]
        lines += [
            f"| {row['kind']} | {row['connections']} | {row['a_second']:,.0f} "
            f"| {row['p50_ms']:.1f} | {row['p99_ms']:.1f} |"
            for row in outcome["load"]
        ]
        lines += ["", *serving_open_loop.table(outcome["open_loop"])]
    if "workers" in outcome:
        lines += ["", *serving_workers.table(outcome["workers"])]
    if "engine" in outcome:
        lines += ["", *serving_engine.tables(outcome["engine"])]
    if "history" in outcome:
        lines += ["", "| model | request | events in the history | p50 ms | p99 ms |"]
        lines += ["|" + "---|" * 5, *(_history_row(row) for row in outcome["history"])]
        lines += ["", growth(outcome["history"])]
    if "ann" in outcome:
        lines += ["", sentence(outcome["ann"])]
    return "\n".join(lines) + "\n"


def _where(outcome: dict[str, Any]) -> str:
    """Every command with the parts that it measured."""
    parts: dict[tuple[str, ...], list[str]] = {}
    for part, about in outcome["about"].items():
        names = ("command", "date", "machine", "commit")
        parts.setdefault(tuple(about[name].strip() for name in names), []).append(part)
    texts = [
        f"`{command}`, {date}, {machine}, commit {commit} ({', '.join(some)})"
        for (command, date, machine, commit), some in parts.items()
    ]
    size = f"{outcome['threads']} thread(s), {outcome['items']:,} items"
    return f"{size}; {'; '.join(texts)}."


def _history_row(row: dict[str, Any]) -> str:
    interval = " ({:.2f} to {:.2f})".format(*row["p99_95_ms"]) if "p99_95_ms" in row else ""
    return (
        f"| {row['way']} | {row['kind']} | {row['length']:,} | {row['p50_ms']:.2f} "
        f"| {row['p99_ms']:.2f}{interval} |"
    )


def growth(rows: list[dict[str, Any]]) -> str:
    """The longest history against the shortest."""
    texts = []
    for way in WAYS:
        for kind in ("events", "recommendations"):
            some = [row for row in rows if (row["way"], row["kind"]) == (way, kind)]
            p50, p99 = (some[-1][name] / some[0][name] for name in ("p50_ms", "p99_ms"))
            length = some[-1]["length"]
            texts.append(f"{way}, {kind}: p50 {p50:.2f} x, p99 {p99:.2f} x ({length:,} events)")
    return (
        f"The longest history against {rows[0]['length']:,} events: {'; '.join(texts)}. In "
        "brackets above, the 95% interval of each p99."
    )


def sentence(found: dict[str, Any]) -> str:
    return (
        f"Index over {found['items']:,} items (vectors {found['vectors']}): recall@10 "
        f"{found['recall_at_10']:.3f} against exact lists, {found['ann_ms']:.2f} ms a list "
        f"instead of {found['exact_ms']:.2f} ms."
    )


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for way, style in zip(WAYS, ("o-", "s--"), strict=True):
        some = [r for r in rows if (r["way"], r["kind"]) == (way, "recommendations")]
        lengths = [row["length"] for row in some]
        axes.plot(lengths, [row["p99_ms"] for row in some], style, label=f"{way}, p99")
        axes.plot(lengths, [row["p50_ms"] for row in some], style, alpha=0.4, label=f"{way}, p50")
    axes.set(xscale="log", yscale="log", xlabel="events in the history", ylabel="ms")
    axes.set_title("A recommendation over HTTP")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=10, help="of each load")
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 1_000, 100_000, 1_000_000])
    parser.add_argument("--max-encoded", type=int, default=100_000, help="history to re-encode")
    parser.add_argument("--repeats", type=int, default=1_000, help="requests of each length")
    parser.add_argument("--history-seconds", type=float, default=300, help="at most, for each way")
    parser.add_argument("--ann-items", type=int, default=200_000)
    parser.add_argument("--ann-run", type=Path, help="a trained run, instead of drawn vectors")
    parser.add_argument("--ann-users", type=int, default=200)
    parser.add_argument("--encoded-repeats", type=int, default=500, help="of re-encode")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--out", type=Path, default=OUT)
    serving_engine.add_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
