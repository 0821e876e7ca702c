"""A warm start against a full training: NDCG@10, and the share of the time that it takes.

    .venv/bin/python -m benchmarks.warm --data gowalla-checkins.inter.gz --users 600

The log is cut by date. The earlier run reads the log without its last `--days` and holds out the
two periods of that length before; the later ones read all of it and hold out its last two, so that
nothing which they are tested on was known to the earlier run. Of the later ones, one is trained in
full and the others start from the earlier run, for each number of epochs that is given. All have
the same settings: recipe `default` without the trial of a repeat head. Time is that of the whole
fit, validation included, in seconds of this process's processor, which do not depend on what else
the machine does. Writes a row of results/benchmarks/warm.json.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import torch

import linrec
from benchmarks.environment import environment
from benchmarks.results import OUT_FOLDER, with_row

OUT = OUT_FOLDER / "warm.json"
DAY = 86_400.0
COLUMNS = {"user": "user_id:token", "item": "item_id:token", "time": "timestamp:float"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, required=True, help="events in RecBole's format")
    parser.add_argument("--users", type=int, default=400, help="the first so many of the log")
    parser.add_argument("--days", type=float, default=28.0, help="of each held-out period")
    parser.add_argument(
        "--epochs", type=int, help="of the full trainings, in place of the recipe's"
    )
    parser.add_argument("--warm-epochs", type=int, nargs="+", default=[3, 4, 5, 6])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    row = {**environment(), **measure(args)}
    print(row)
    with_row(args.out, "python -m benchmarks.warm", row, ("data", "users", "days", "seed"))


def measure(args: argparse.Namespace) -> dict[str, Any]:
    log = pl.read_csv(args.data, separator="\t").select(**COLUMNS)
    some = log["user"].unique(maintain_order=True).head(args.users)
    log = log.filter(pl.col("user").is_in(some.implode()))
    end, period = float(log["time"].max()), args.days * DAY  # type: ignore[arg-type]
    before = log.filter(pl.col("time") <= end - period)
    settings = {
        "width": args.width,
        "repeat_head": "off",
        "seed": args.seed,
        "precision": "float32",
    }
    if args.epochs:
        settings["epochs"] = args.epochs
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "before"
        linrec.Recommender(**settings, **dates(end - period, period)).fit(
            linrec.prepare(before, min_item_events=5), run
        )
        store, now = linrec.prepare(log, min_item_events=5), dates(end, period)
        full, _ = fitted(store, **settings, **now)
        warm: list[dict[str, Any]] = []
        for epochs in args.warm_epochs:
            row, model = fitted(store, start=run, epochs=epochs, **now)
            row["share_of_ndcg"] = row["ndcg@10"] / full["ndcg@10"]
            row["share_of_time"] = row["seconds"] / full["seconds"]
            print(row, flush=True)
            warm.append(row)
    return {
        "data": args.data.name.split(".")[0],
        "users": args.users,
        "days": args.days,
        "seed": args.seed,
        "width": args.width,
        "events": store.n_events,
        "items": model.description.start["changes"]["items"],  # type: ignore[index]
        "full": full,
        "warm": warm,
    }


def fitted(
    store: linrec.SequenceStore, **settings: Any
) -> tuple[dict[str, Any], linrec.Recommender]:
    began = time.process_time()
    model = linrec.Recommender(**settings).fit(store)
    seconds = round(time.process_time() - began, 1)
    return {**figures(model), "seconds": seconds}, model


def dates(end: float, period: float) -> dict[str, Any]:
    """Validate on the last period but one, test on the last; every held-out event is a target."""
    return {
        "split": "temporal", "valid_from": end - 2 * period, "test_from": end - period,
        "targets": "every",
    }  # fmt: skip


def figures(model: linrec.Recommender) -> dict[str, Any]:
    assert model.trained is not None
    evaluation, progress = model.evaluate(baselines=True), model.trained.progress
    interval = evaluation.metrics["ndcg@10"]
    return {
        "ndcg@10": interval.mean,
        "interval": [interval.low, interval.high],
        "popularity": evaluation.baselines["popularity"]["ndcg@10"],
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "validation": progress.best,
    }


if __name__ == "__main__":
    main()
