"""Items without a training event: recall by their vectors, against popularity and chance.

    .venv/bin/python -m benchmarks.cold_items --data complete-journey.inter.gz
    .venv/bin/python -m benchmarks.cold_items --data gowalla-checkins.inter.gz \
        --vectors coordinates --users 600

The log is cut by date: training ends `--days` twice before its end. An item whose first event comes
later is cold, and so is every test event on it that is the first of its user (the model is asked
for new items, not for repeats of them). With `--vectors features` the vector of an item is the sum
of one random vector for each of its features, as if a text encoder had read them; with
`coordinates` it says where a place is: random Fourier features of its position on the globe at
`SCALES`, so that the product of two vectors falls with their distance. Ranked among the cold items,
and among all; ties count against the target. Compared with chance, with popularity, which cannot
tell cold items apart, with the training events of the item's kind (what is known of a cold item
without a model), and with the items whose vectors are most similar to that of the user's last item.
Writes a row of results/benchmarks/cold-items.json for each share of id dropout, and with those of
coordinates the table in docs/evaluating.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

import linrec
from benchmarks.environment import ROOT, environment
from benchmarks.results import OUT_FOLDER, between, with_row
from benchmarks.warm import COLUMNS, DAY, dates
from linrec.data.dataset.splits import Holdout
from linrec.evaluation.scorer import model_scorer
from linrec.scoring import rank_of_target

OUT, PAGE = OUT_FOLDER / "cold-items.json", ROOT / "docs" / "evaluating.md"
KINDS = ("product_type:token", "category_id:token")
KS, ROWS = (10, 100), 64
SCALES = (1.0, 5.0, 25.0, 250.0)  # kilometres
EARTH = 6_371.0
Array = NDArray[Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, required=True, help="events in RecBole's format")
    parser.add_argument("--users", type=int, default=300, help="the first so many of the log")
    parser.add_argument("--days", type=float, default=28.0, help="of each held-out period")
    parser.add_argument("--item-events", type=int, default=5, help="that an item has at least")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--vectors", choices=["features", "coordinates"], default="features")
    parser.add_argument("--id-dropout", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    parser.add_argument("--vector-width", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    store, end = prepared(args)
    for share in args.id_dropout:
        row = {**environment(), **measure(args, store, end, share)}
        print(row, flush=True)
        same = ("data", "users", "days", "vectors", "seed", "id_dropout")
        with_row(args.out, "python -m benchmarks.cold_items", row, same)
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def prepared(args: argparse.Namespace) -> tuple[linrec.SequenceStore, float]:
    log = pl.read_csv(args.data, separator="\t").select(**COLUMNS)
    some = log["user"].unique(maintain_order=True).head(args.users)
    log = log.filter(pl.col("user").is_in(some.implode()))
    log = log.filter(pl.len().over("item") >= args.item_events)
    items = pl.read_csv(
        args.data.with_name(args.data.name.split(".")[0] + ".item"),
        separator="\t",
        infer_schema=False,
    )
    items = items.filter(pl.col("item_id:token").cast(pl.Int64).is_in(log["item"].implode()))
    made = places if args.vectors == "coordinates" else vectors_of
    vectors = made(items, args.vector_width, args.seed)
    ids = items["item_id:token"].cast(pl.Int64).to_numpy()
    kinds = items.select(
        item=pl.Series(ids),
        kind=pl.col(next(name for name in KINDS if name in items.columns)).fill_null("unknown"),
    )
    store = linrec.prepare(
        log, items=kinds, item_vectors=(ids, vectors), ties="shuffle",
        feature_kinds={"kind": "categorical"},
    )  # fmt: skip
    return store, float(log["time"].max())  # type: ignore[arg-type]


def vectors_of(items: pl.DataFrame, width: int, seed: int) -> Array:
    """The sum of a random vector for each value of each feature: [items, width]."""
    rng, table = np.random.default_rng(seed), np.zeros((len(items), width), np.float32)
    for name in items.columns[1:]:
        codes = items[name].fill_null("").rank("dense").to_numpy() - 1
        table += rng.normal(size=(int(codes.max()) + 1, width)).astype(np.float32)[codes]
    return table


def places(items: pl.DataFrame, width: int, seed: int) -> Array:
    """Random Fourier features of each place: [items, width]."""
    degrees = [items[f"{name}:float"].cast(pl.Float64) for name in ("latitude", "longitude")]
    latitude, longitude = (np.radians(each.fill_null(0.0).to_numpy()) for each in degrees)
    x, y = np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude)
    position = EARTH * np.stack([x, y, np.sin(latitude)], 1)
    rng, parts = np.random.default_rng(seed), []
    for scale in SCALES:
        each = width // len(SCALES) // 2
        phase = position @ (rng.normal(size=(3, each)) / scale)
        parts += [np.cos(phase), np.sin(phase)]
    return np.concatenate(parts, 1).astype(np.float32)


def measure(
    args: argparse.Namespace, store: linrec.SequenceStore, end: float, id_dropout: float
) -> dict[str, Any]:
    model = linrec.Recommender(
        width=64, repeat_head="off", seen="keep", seed=args.seed, precision="float32",
        epochs=args.epochs, id_dropout=id_dropout, **dates(end, args.days * DAY),
    ).fit(store)  # fmt: skip
    split = model.config.split.of(store)
    trained = split.train.item_counts(store.n_items)
    cold = torch.from_numpy(trained == 0)
    cold[0] = False
    rows = cold_rows(split.test, cold.numpy())
    among_cold, among_all = ranks(model, split.test, rows, cold)
    targets = torch.from_numpy(split.test.targets[rows])
    events = torch.from_numpy(trained).float()
    by_kind = kind_events(store, trained).expand(len(rows), -1)
    near = nearest(store, split.test, rows)
    assert model.trained is not None
    return {
        "data": args.data.name.split(".")[0], "users": args.users, "days": args.days,
        "vectors": args.vectors, "seed": args.seed, "id_dropout": id_dropout, "recall_at": list(KS),
        "epochs": model.trained.progress.epoch,
        "items": store.n_items, "cold_items": int(cold.sum()), "cold_targets": len(rows),
        "valid_ndcg@10": model.trained.progress.best,
        "among_cold": {
            "model": recall(among_cold),
            "type_popularity": recall(rank_of_target(hidden_but(by_kind, cold), targets)),
            "similar_to_last": recall(rank_of_target(hidden_but(near, cold), targets)),
            "random": [min(1.0, k / int(cold.sum())) for k in KS],
        },
        "among_all": {
            "model": recall(among_all),
            "popularity": recall(rank_of_target(events.expand(len(rows), -1), targets)),
            "similar_to_last": recall(rank_of_target(near, targets)),
            "random": [k / store.n_items for k in KS],
        },
        "test_ndcg@10": model.evaluate()["ndcg@10"],
    }  # fmt: skip


def cold_rows(test: Holdout, cold: Array) -> Array:
    """Rows whose target is a cold item that the user has not had before."""
    seen: set[tuple[int, int]] = set()
    rows = []
    for row in np.flatnonzero(cold[test.targets]):
        pair = (int(test.users[row]), int(test.targets[row]))
        if pair not in seen:
            seen.add(pair)
            rows.append(row)
    return np.array(rows)


@torch.no_grad()
def ranks(
    model: linrec.Recommender, test: Holdout, rows: Array, cold: Tensor
) -> tuple[Tensor, Tensor]:
    score = model_scorer(model.model)
    found: list[tuple[Tensor, Tensor]] = []
    for first in range(0, len(rows), ROWS):
        some = rows[first : first + ROWS]
        scores, targets = score(test.histories.take(some)), torch.from_numpy(test.targets[some])
        scores[:, 0] = -torch.inf
        among = rank_of_target(hidden_but(scores, cold), targets)
        found.append((among, rank_of_target(scores, targets)))
    both = [torch.cat(part) for part in zip(*found, strict=True)]
    return both[0], both[1]


def kind_events(store: linrec.SequenceStore, trained: Array) -> Tensor:
    """[n_items + 1], the training events of all items of the same product type."""
    codes = store.item_table["kind"].fill_null("").rank("dense").to_numpy().astype(np.int64)
    totals = np.bincount(codes, trained[1:])
    return torch.from_numpy(np.concatenate([[0.0], totals[codes]])).float()


def hidden_but(scores: Tensor, cold: Tensor) -> Tensor:
    return scores.masked_fill(~cold, -torch.inf)


def nearest(store: linrec.SequenceStore, test: Holdout, rows: Array) -> Tensor:
    """[rows, n_items + 1], the cosine of each item's vector with that of the newest item."""
    assert store.item_vectors is not None
    unit = torch.nn.functional.normalize(torch.from_numpy(np.array(store.item_vectors)), dim=1)
    last = test.histories.items[test.histories.ends[rows] - 1].astype(np.int64)
    cosines = unit[last] @ unit.T
    cosines[:, 0] = -torch.inf
    return cosines


def recall(found: Tensor) -> list[float]:
    """At each of `KS`."""
    return [round(float((found < k).float().mean()), 4) for k in KS]


def rendered(page: str) -> str:
    """docs/evaluating.md with the table between its markers replaced."""
    return between(page, "cold-items", table(json.loads(OUT.read_text("utf-8"))["rows"]))


def table(rows: list[dict[str, Any]]) -> str:
    """Recall among all items, of the rows with vectors of where places are."""
    rows = [row for row in rows if row.get("vectors") == "coordinates"]
    heads = [f"Recall@{k}" for k in rows[0]["recall_at"]]
    lines = [
        f"| on targets without training events | {' | '.join(heads)} | NDCG@10 of all targets |",
        "|---|---|---|---|",
    ]
    found = rows[0]["among_all"]
    lines += [_line("popularity", found["popularity"]), _line("chance", found["random"])]
    for row in rows:
        name = f"the model, with `--id-dropout` {row['id_dropout']:g}"
        lines.append(_line(name, row["among_all"]["model"], row["test_ndcg@10"]))
    near = "the places nearest to the user's last one, by the same vectors"
    return "\n".join([*lines, _line(near, found["similar_to_last"])]) + "\n"


def _line(name: str, recalls: list[float], ndcg: float | None = None) -> str:
    cells = [*(f"{value:.3f}" for value in recalls), "" if ndcg is None else f"{ndcg:.3f}"]
    return f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
