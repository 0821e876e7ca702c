"""A warm start against a full training: NDCG@10, and the share of the time that it takes.

    .venv/bin/python -m benchmarks.warm --data gowalla-checkins.inter.gz --users 600 --gap 1 7 28

The log is cut by date. The later trainings read all of it, validate on its last `--days` but one
period and are tested on the last. An earlier run for each `--gap` reads the log without its last
so many days, and holds out two such periods before: it is what a refresh every `--gap` days starts
from, and nothing that the later ones are tested on was known to it. Of the later ones, one is
trained in full and the others start from an earlier run, for each number of epochs and each share
of the learning rate that is given. All have the same settings: recipe `default` without the trial
of a repeat head. Time is that of the whole fit, validation included, in seconds of this process's
processor, which depend little on what else the machine does. Writes a row of
results/benchmarks/warm.json for each gap, and with all of them the table in docs/training.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import torch

import linrec
from benchmarks.environment import ROOT, environment
from benchmarks.results import OUT_FOLDER, between, with_row
from linrec.runs.run import Run
from linrec.runs.warm_settings import EPOCHS

OUT, PAGE = OUT_FOLDER / "warm.json", ROOT / "docs" / "training.md"
AGES = {1.0: "a day", 7.0: "a week", 28.0: "four weeks"}
DAY = 86_400.0
COLUMNS = {"user": "user_id:token", "item": "item_id:token", "time": "timestamp:float"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, required=True, help="events in RecBole's format")
    parser.add_argument("--users", type=int, default=400, help="the first so many of the log")
    parser.add_argument("--days", type=float, default=28.0, help="of each held-out period")
    parser.add_argument(
        "--gap", type=float, nargs="+", default=[1.0, 7.0, 28.0], help="days since the earlier run"
    )
    parser.add_argument(
        "--epochs", type=int, help="of the full trainings, in place of the recipe's"
    )
    parser.add_argument(
        "--warm-epochs", type=int, nargs="+", default=[None], help="left out: the default"
    )
    parser.add_argument(
        "--rate", type=float, nargs="+", default=[None], help="shares of the full learning rate"
    )
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for row in measure(args):
        print(row, flush=True)
        same = ("data", "users", "days", "gap", "seed")
        with_row(args.out, "python -m benchmarks.warm", {**environment(), **row}, same)
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for each gap."""
    log = pl.read_csv(args.data, separator="\t").select(**COLUMNS)
    some = log["user"].unique(maintain_order=True).head(args.users)
    log = log.filter(pl.col("user").is_in(some.implode()))
    end, period = float(log["time"].max()), args.days * DAY  # type: ignore[arg-type]
    settings = {
        "width": args.width,
        "repeat_head": "off",
        "seed": args.seed,
        "precision": "float32",
    }
    if args.epochs:
        settings["epochs"] = args.epochs
    store, now = linrec.prepare(log, min_item_events=5), dates(end, period)
    full, _ = fitted(store, **settings, **now)
    print(full, flush=True)
    for gap in args.gap:
        with tempfile.TemporaryDirectory() as folder:
            run, before = Path(folder) / "before", end - gap * DAY
            linrec.Recommender(**settings, **dates(before, period)).fit(
                linrec.prepare(log.filter(pl.col("time") <= before), min_item_events=5), run
            )
            warm = list(warm_starts(args, store, run, now, full))
            items = Run.open(run).catalogue.ids.index_of(store.item_table["item"])
        yield {
            "data": args.data.name.split(".")[0],
            "users": args.users,
            "days": args.days,
            "gap": gap,
            "seed": args.seed,
            "width": args.width,
            "events": store.n_events,
            "new_events": int((log["time"] > before).sum()),
            "items": {"old": int((items > 0).sum()), "new": int((items < 0).sum())},
            "full": full,
            "warm": warm,
        }


def warm_starts(
    args: argparse.Namespace,
    store: linrec.SequenceStore,
    run: Path,
    now: dict[str, Any],
    full: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """One for each number of epochs and share of the learning rate."""
    full_rate = Run.open(run).config.training.learning_rate
    for epochs, share in product(args.warm_epochs, args.rate):
        rate = None if share is None else share * full_rate
        row, model = fitted(store, start=run, epochs=epochs, learning_rate=rate, **now)
        row["learning_rate"] = model.config.training.learning_rate
        row["share_of_ndcg"] = row["ndcg@10"] / full["ndcg@10"]
        row["share_of_time"] = row["seconds"] / full["seconds"]
        print(row, flush=True)
        yield row


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


def rendered(page: str) -> str:
    """docs/training.md with the table between its markers replaced."""
    return between(page, "warm", table(json.loads(OUT.read_text("utf-8"))["rows"]))


def table(rows: list[dict[str, Any]]) -> str:
    """Warm starts of the default number of epochs at the full learning rate.

    Rows of early versions have one warm start, no gap, which was the length of a period, and no
    time of the processor.
    """
    lines = [
        "| users | the earlier run is | new items | seed | epochs in full | NDCG@10 "
        f"| of a warm start of {EPOCHS} epochs | share of the NDCG | share of the time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row["users"], _gap(row), row["seed"])):
        several = row["warm"] if isinstance(row["warm"], list) else [row["warm"]]
        default = [one for one in several if one["epochs"] == EPOCHS]
        warm, full, items = max(default, key=_rate), row["full"], row["items"]
        time = warm.get("share_of_time")
        cells = [
            str(row["users"]), f"{AGES.get(_gap(row), f'{_gap(row):g} days')} old",
            f"{items['new']:,} of {items['old'] + items['new']:,}", str(row["seed"]),
            str(full["epochs"]), f"{full['ndcg@10']:.4f}", f"{warm['ndcg@10']:.4f}",
            percent(row.get("share_of_ndcg", warm.get("share_of_ndcg"))),
            "not measured" if time is None else percent(time),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _gap(row: dict[str, Any]) -> float:
    return float(row.get("gap", row["days"]))


def _rate(warm: dict[str, Any]) -> float:
    return float(warm.get("learning_rate", 0.0))


if __name__ == "__main__":
    main()
