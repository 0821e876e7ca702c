"""One worker against two, one thread each: `linrec train`, `recommend --all` and `evaluate`.

    python -m benchmarks.scale --parts data        # once: the datasets and the run, in --folder
    python -m benchmarks.scale --parts train
    python -m benchmarks.scale --parts recommend
    python -m benchmarks.scale --parts evaluate

Training is an epoch of MovieLens-1M at the paper's width. Lists and ranks are for 640,000 users,
pieces of its histories, each several times; the model has drawn weights, which cost what learned
ones cost. So a command takes a minute or two, against which the start of the engine is to be seen.
Every command is a process of its own, timed from its start to its end; of a training, the epoch
alone as well, because the evaluation on test is done by the first worker. The limit is what this
machine can do: two commands of one process each at the same time, which share nothing. Run it while
nothing else runs. Writes results/benchmarks/scale.json and the tables of docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from benchmarks.environment import ROOT, environment
from benchmarks.results import OUT_FOLDER, between, write_json
from linrec.backbones import Backbone
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.recommender import load
from linrec.scoring import top_k
from tests.serving.cases import make_run

OUT, PAGE = OUT_FOLDER / "scale.json", ROOT / "docs" / "scale.md"
ML_1M = ROOT.parent / "shared" / "data" / "ml-1m" / "ml-1m.inter.gz"
TRAINING = [
    "--epochs", "1", "--precision", "float32", "--batch-tokens", "16384", "--width", "128",
    "--inner", "256", "--layers", "2", "--window", "512", "--device", "cpu",
]  # fmt: skip
MODEL: dict[str, Any] = {"width": 128, "heads": 8, "layers": 2, "inner": 256, "positions": 256}
PIECE, PIECES, COPIES = 12, 80_000, 8  # events of a user; users are 64 parts of 10,000
ONE, LIMIT = "one process", "limit"
WAYS = {
    ONE: [],
    "Ray, 1 worker": ["--engine", "ray", "--workers", "1"],
    "Ray, 2 workers": ["--engine", "ray", "--workers", "2"],
}


def main() -> None:
    args = _arguments()
    for part in args.parts:
        if part == "data":
            make_data(args.folder, args.ml_1m)
            continue
        outcome = json.loads(args.out.read_text("utf-8")) if args.out.is_file() else {}
        command = f"python -m benchmarks.scale --parts {part}"
        if part == "train":
            found = train(args.folder)
        else:
            measured = recommend if part == "recommend" else evaluate
            found = measured(args.folder, args.ways, outcome.get(part, {}))
        outcome[part] = {"command": command, **environment(), "threads": 1, **found}
        write_json(args.out, outcome)
        print(f"wrote {args.out}")
    if args.out == OUT and OUT.is_file():
        PAGE.write_text(between(PAGE.read_text("utf-8"), "figures", tables()), "utf-8")


def make_data(folder: Path, ml_1m: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    store = prepare(ml_1m)
    prepare(ml_1m, folder / "ml-1m", overwrite=True)
    prepare(pieces(store), folder / "pieces", overwrite=True)
    cut = SequenceStore.open(folder / "pieces")
    print(f"{cut.n_users:,} users, {cut.n_items:,} items, {cut.n_events:,} events")
    make_run(folder / "run", cut, **MODEL)


def pieces(store: SequenceStore) -> pl.DataFrame:
    """Users with a piece of a history each."""
    lengths = np.diff(store.offsets)
    place = np.arange(store.n_events) - np.repeat(store.offsets[:-1], lengths)
    users = np.repeat(np.arange(len(lengths)), lengths)
    frame = pl.DataFrame({"of": users, "piece": place // PIECE, "item": np.array(store.items),
                          "time": np.array(store.times)})  # fmt: skip
    whole = frame.filter(pl.len().over("of", "piece") == PIECE)
    user = pl.struct("of", "piece").rank("dense") - 1
    once = whole.with_columns(user=user).filter(pl.col("user") < PIECES).drop("of", "piece")
    return pl.concat([once.with_columns(pl.col("user") + n * PIECES) for n in range(COPIES)])


# --------------------------------------------------------------------------------------- measuring


def train(folder: Path) -> dict[str, Any]:
    def words(name: str) -> list[str]:
        out = str(folder / "train" / name.replace(" ", "-").replace(",", ""))
        return ["train", str(folder / "ml-1m"), "--out", out, "--overwrite", *TRAINING]

    rows = []
    for name, more in WAYS.items():
        row = {"way": name, "seconds": timed([[*words(name), *more]])[0]}
        row |= epoch_of(Path(words(name)[3]))
        rows.append(row)
        print(row, flush=True)
    both = [words("twice a"), words("twice b")]
    print(timed(both), flush=True)
    slower = max(epoch_of(Path(one[3]))["epoch_seconds"] for one in both)
    limit = round(2 * rows[0]["epoch_seconds"] / slower, 3)
    return {"settings": " ".join(TRAINING), "rows": rows, "limit": limit}


def epoch_of(run: Path) -> dict[str, float]:
    row = pl.read_csv(run / "history.csv").row(0, named=True)
    return {
        "epoch_seconds": row["seconds"], "valid_seconds": row["valid_seconds"],
        "loss": row["loss"],
    }  # fmt: skip


def recommend(folder: Path, ways: list[str], known: dict[str, Any]) -> dict[str, Any]:
    def words(name: str) -> list[str]:
        out = folder / "recommended" / name.replace(" ", "-").replace(",", "")
        shutil.rmtree(out, ignore_errors=True)
        return ["recommend", str(folder / "run"), "--all", "-k", "20", "--out", str(out)]

    found = compared(words, ways, known)
    if ONE not in ways:
        return known | found
    lists = (folder / "recommended" / "one-process").glob("part-*.parquet")
    written = sum(path.stat().st_size for path in lists)
    of = SequenceStore.open(folder / "pieces")
    found |= {"users": of.n_users, "items": of.n_items, "events": of.n_events}
    return found | {"bytes_a_list": round(written / of.n_users, 1), **constants(folder)}


def evaluate(folder: Path, ways: list[str], known: dict[str, Any]) -> dict[str, Any]:
    words = ["evaluate", str(folder / "run"), "--baselines", "none", "--json"]
    return known | compared(lambda _: words, ways, known)


def compared(
    words: Callable[[str], list[str]], ways: list[str], known: dict[str, Any]
) -> dict[str, Any]:
    """words: the command, by the name of the way. known: what was measured before."""
    rows, commit = [], environment()["commit"]
    before = {row["way"]: {"commit": known["commit"]} | row for row in known.get("rows", ())}
    for name, more in WAYS.items():
        if name in ways:
            seconds = timed([[*words(name), *more]])[0]
            before[name] = {"way": name, "seconds": seconds, "commit": commit}
        rows.append(before[name])
        print(rows[-1], flush=True)
    if LIMIT not in ways:
        return {"rows": rows, "limit": known["limit"]}
    slower = max(timed([words("twice a"), words("twice b")]))
    return {"rows": rows, "limit": round(2 * rows[0]["seconds"] / slower, 3)}


def constants(folder: Path) -> dict[str, float]:
    """Of benchmarks.capacity: to read an event and to score an item for a user, one thread."""
    torch.set_num_threads(1)
    model = load(folder / "run")
    encoder, histories = model.model, model.dataset().sequences().take(slice(0, 1_365))
    assert isinstance(encoder, Backbone)
    with torch.inference_mode():
        hidden = encoder.encode(histories)
        vectors = torch.randn(200_000, hidden.shape[1])
        reading = min(_seconds(lambda: encoder.encode(histories)) for _ in range(5))
        ranking = min(_seconds(lambda: top_k(hidden[:64] @ vectors.T, 20)) for _ in range(5))
    return {
        "encode_seconds_a_million_events": round(1e6 * reading / int(histories.lengths.sum()), 2),
        "score_seconds_a_billion_pairs": round(1e9 * ranking / (64 * len(vectors)), 2),
    }


def _seconds(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def timed(commands: list[list[str]]) -> list[float]:
    """Wall seconds of commands that run at the same time, from the start of the first."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    began = time.perf_counter()
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "linrec", *words], cwd=ROOT, env=environment,
            stdout=subprocess.DEVNULL,
        )
        for words in commands
    ]  # fmt: skip
    seconds = []
    for process in running:
        if process.wait():
            raise SystemExit(f"{process.args} failed with exit code {process.returncode}")
        seconds.append(round(time.perf_counter() - began, 2))
    return seconds


# ------------------------------------------------------------------------------------------ tables


def tables() -> str:
    outcome = json.loads(OUT.read_text("utf-8"))
    parts = []
    if "train" in outcome:
        parts.append(train_table(outcome["train"]))
    for part, name in (("recommend", "recommend --all"), ("evaluate", "evaluate --baselines none")):
        if part in outcome:
            parts.append(command_table(f"linrec {name}", outcome[part]))
    return "\n".join(parts)


def train_table(found: dict[str, Any]) -> str:
    first, one, *_ = found["rows"]
    lines = [
        "| `linrec train`, one epoch | epoch, s | x one process | validation, s | command, s |",
        "|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        faster = first["epoch_seconds"] / row["epoch_seconds"]
        lines.append(
            f"| {row['way']} | {row['epoch_seconds']:.1f} | {faster:.2f} | "
            f"{row['valid_seconds']:.1f} | {row['seconds']:.1f} |"
        )
    two = next(row for row in found["rows"] if row["way"] == "Ray, 2 workers")
    faster = one["epoch_seconds"] / two["epoch_seconds"]
    return "\n".join(
        [
            *lines,
            "",
            f"Two workers train {faster:.2f} times as fast as one. Two trainings that share "
            f"nothing run {found['limit']:.2f} times as fast as one after the other, the limit of "
            f"this machine when it was measured; two workers reach {faster / found['limit']:.0%} "
            f"of it. {added(one, first)} {where(found)}",
            "",
        ]
    )


def command_table(name: str, found: dict[str, Any]) -> str:
    first, one, two = found["rows"]
    lines = [f"| `{name}` | s | x one process |", "|---|---|---|"]
    lines += [
        f"| {row['way']} | {row['seconds']:.1f} | {first['seconds'] / row['seconds']:.2f} |"
        for row in found["rows"]
    ]
    words = (
        f"Two workers are {one['seconds'] / two['seconds']:.2f} times as fast as one, the limit of "
        f"this machine was {found['limit']:.2f}. {added(one, first)} {where(found)}"
    )
    return "\n".join([*lines, "", words, ""])


def added(one: dict[str, Any], first: dict[str, Any]) -> str:
    seconds = one["seconds"] - first["seconds"]
    return (
        f"At one worker Ray adds {seconds:.0f} s to the command, {seconds / first['seconds']:.0%}."
    )


def where(found: dict[str, Any]) -> str:
    others: dict[str, list[str]] = {}  # commit -> the ways that were measured with it
    for row in found["rows"]:
        if row.get("commit", found["commit"]) != found["commit"]:
            others.setdefault(row["commit"], []).append(row["way"])
    other = [f"{' and '.join(ways)}: commit {commit}" for commit, ways in others.items()]
    return (
        f"One thread per process, {found['machine']}, {found['date']}, commit {found['commit']}"
        f"{' (' + '; '.join(other) + ')' if other else ''}: `{found['command']}`."
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--parts", nargs="+", choices=("data", "train", "recommend", "evaluate"), required=True
    )
    parser.add_argument(
        "--ways", nargs="+", choices=(*WAYS, LIMIT), default=[*WAYS, LIMIT],
        help="of lists and ranks, measure these alone and keep what is known of the others",
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "scale")
    parser.add_argument("--ml-1m", type=Path, default=ML_1M)
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
