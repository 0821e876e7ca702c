"""What re-ranking for diversity costs: NDCG@10 beside the diversity of the lists.

    .venv/bin/python -m benchmarks.diversity --data ml-latest-small.inter.gz --ties shuffle
    .venv/bin/python -m benchmarks.diversity --data ml-1m.inter.gz --users 1000 --epochs 8

One model is trained (leave-one-out, all items ranked) and its lists are re-ranked more and more
strongly; the features in the `.item` file beside the data say what is alike. Each row has the
difference in NDCG@10 from the plain lists of the same users, with its 95 % interval and the p-value
of a paired t-test. Writes a row of results/benchmarks/diversity.json for each `--diversity`, and
with all of them the table in docs/evaluating.md.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import torch

import linrec
from benchmarks.environment import ROOT, environment
from benchmarks.results import OUT_FOLDER, between, with_row
from benchmarks.warm import COLUMNS
from linrec.evaluation import Interval, compare

OUT, PAGE = OUT_FOLDER / "diversity.json", ROOT / "docs" / "evaluating.md"
SAME = ("data", "users", "seed", "epochs", "diversity")
SHOWN = ("ndcg@10", "recall@10", "diversity@10", "coverage@10", "novelty@10", "miscalibration@10")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, required=True, help="events in RecBole's format")
    parser.add_argument("--users", type=int, help="the first so many of the log; all if left out")
    parser.add_argument("--ties", choices=["file", "shuffle"], default="file")
    parser.add_argument("--item-events", type=int, default=5, help="that an item has at least")
    parser.add_argument("--recipe", default="small")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--diversity", type=float, nargs="+", default=[0.1, 0.2, 0.3, 0.5, 0.7, 1.0]
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    about = environment()
    for row in measure(args):
        print(row, flush=True)
        with_row(args.out, "python -m benchmarks.diversity", {**about, **row}, SAME)
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def prepared(args: argparse.Namespace) -> linrec.SequenceStore:
    log = pl.read_csv(args.data, separator="\t", infer_schema=False).select(**COLUMNS)
    log = log.with_columns(pl.col("time").cast(pl.Float64))
    if args.users is not None:
        some = log["user"].unique(maintain_order=True).head(args.users)
        log = log.filter(pl.col("user").is_in(some.implode()))
    features = args.data.with_name(args.data.name.split(".")[0] + ".item")
    return linrec.prepare(log, items=features, ties=args.ties, min_item_events=args.item_events)


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for the plain lists, and one for each strength."""
    store = prepared(args)
    model = linrec.Recommender(recipe=args.recipe, epochs=args.epochs, seed=args.seed).fit(store)
    assert model.trained is not None
    plain = model.evaluate_users(baselines=False)
    rows = []
    for strength in [0.0, *args.diversity]:
        ranked = model.evaluate_users(baselines=False, diversity=strength) if strength else plain
        figures = ranked[0].metrics
        row: dict[str, Any] = {
            "data": args.data.name.split(".")[0], "users": store.n_users, "items": store.n_items,
            "events": store.n_events, "ties": args.ties, "seen": model.config.training.seen,
            "recipe": args.recipe, "seed": args.seed, "epochs": args.epochs,
            "best_epoch": model.trained.progress.best_epoch,
            "alike_by": list(ranked[0].compared_by), "diversity": strength,
            **{name: interval(figures[name]) for name in SHOWN},
        }  # fmt: skip
        if strength:
            test = compare(plain, ranked, ["ndcg@10"])["ndcg@10"]
            row["difference"], row["p"] = interval(test.difference), test.t_p
            row["share_of_ndcg"] = test.mean_b / test.mean_a
        rows.append(row)
    return rows


def interval(value: Interval) -> list[float | None]:
    """The mean and the ends of its 95 % interval, where there is one."""
    return [None if part is None else round(part, 5) for part in asdict(value).values()]


def rendered(page: str) -> str:
    """docs/evaluating.md with the table between its markers replaced."""
    return between(page, "diversity", table(json.loads(OUT.read_text("utf-8"))["rows"]))


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| data | `--diversity` | NDCG@10 | of the plain list | difference (95 % interval) | p "
        "| Diversity@10 | Coverage@10 | Miscalibration@10 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["data"] if not row["diversity"] else "", f"{row['diversity']:g}"]
        cells += [f"{row['ndcg@10'][0]:.4f}", *_cost(row)]
        cells += [f"{row[name][0]:.3f}" for name in SHOWN[2:] if name != "novelty@10"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cost(row: dict[str, Any]) -> list[str]:
    """The share that is left, the difference and its p-value; of the plain lists nothing."""
    if not row["diversity"]:
        return ["", "", ""]
    mean, low, high = (f"{part:+.4f}" for part in row["difference"])
    p = "< 0.0001" if row["p"] < 1e-4 else f"{row['p']:.4f}"
    return [f"{row['share_of_ndcg']:.1%}".replace("%", " %"), f"{mean} ({low} to {high})", p]


if __name__ == "__main__":
    main()
