"""Time and memory of a training step by each loss, over the size of the catalogue.

    .venv/bin/python -m benchmarks.losses                                    # all
    .venv/bin/python -m benchmarks.losses --items 3416 --targets 400 --repeats 1

SASRec with linrec-decay in the paper's size, windows of 200: forward, loss, backward, Adam. Losses
take turns within one process; memory is how far steps raise a fresh process that has the model and
its moments already. `plain` is the softmax as one writes it first, with all scores at once, where
that fits. Run it while nothing else runs. Writes results/benchmarks/losses.json and the table of
docs/performance.md.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measuring import (
    ITEMS,
    alone,
    arguments,
    seconds_of,
    training_step,
    write,
)
from benchmarks.memory import peak_mb
from benchmarks.results import OUT_FOLDER, PAGE, between, where
from linrec.losses import LOSSES, ItemVectors, Loss
from linrec.types import SeenItems

WINDOW = 200
OUT = OUT_FOLDER / "losses.json"
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"loss": "softmax"},
    "softmax": {"loss": "softmax"},
    "sampled-softmax": {"loss": "sampled-softmax"},
    "sampled-softmax, sparse": {"loss": "sampled-softmax", "sparse_items": True},
    "gbce": {"loss": "gbce"},
    "gbce, sparse": {"loss": "gbce", "sparse_items": True},
}
PLAIN_SCORES = 2**28  # 1 GB of scores, and three times that while they are used


class Plain(Loss):
    def __call__(
        self, hidden: Tensor, targets: Tensor, items: ItemVectors, seen: SeenItems | None = None
    ) -> Tensor:
        assert seen is None, "the plain loss leaves nothing out"
        return F.cross_entropy(hidden @ items.all().vectors[1:].T, targets - 1)


def main() -> None:
    parser = arguments(__doc__, OUT)
    parser.add_argument("--items", type=int, nargs="+", default=[ITEMS, 200_000, 1_000_000])
    parser.add_argument(
        "--memory-of", choices=WAYS, help="measure only this one (used by the benchmark itself)"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.memory_of:
        print(json.dumps({"mib": memory(args.memory_of, args.items[0], args.targets)}))
        return
    rows = []
    for n_items in args.items:
        found = compared(n_items, args.targets, args.repeats, args.threads)
        print(*found, sep="\n")
        rows += found
    write(args.out, {"threads": args.threads, "targets": args.targets, "rows": rows})
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def compared(n_items: int, targets: int, repeats: int, threads: int) -> list[dict[str, Any]]:
    ways = [way for way in WAYS if way != "plain" or n_items * targets <= PLAIN_SCORES]
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats):
        for way in ways:
            step = step_of(way, n_items, targets)
            step()  # makes the moments of Adam
            best[way] = min(best[way], seconds_of(step))
            del step
            gc.collect()  # of a million items a model with its moments is gigabytes
    return [
        {
            "items": n_items,
            "loss": way,
            "ms": round(1e3 * best[way], 1),
            "times_softmax": round(best["softmax"] / best[way], 2),
            "mib": alone(
                "benchmarks.losses", memory_of=way, items=n_items, targets=targets, threads=threads
            )["mib"],
        }
        for way in ways
    ]


def step_of(way: str, n_items: int, targets: int) -> Callable[[], None]:
    usual = LOSSES["softmax"]
    try:
        if way == "plain":
            LOSSES["softmax"] = Plain
        return training_step(WINDOW, n_items, targets=targets, **WAYS[way])
    finally:
        LOSSES["softmax"] = usual


def memory(way: str, n_items: int, targets: int) -> float:
    """What steps need beside the weights and the moments, which every way has, in MiB."""
    step = step_of(way, n_items, targets)
    before = peak_mb()
    step()
    step()
    moments = 2 * 4 * 128 * n_items / 2**20
    return round(peak_mb() - before - moments, 1)


def rendered(page: str) -> str:
    """docs/performance.md with the table between its markers replaced."""
    return between(page, "losses", table(json.loads(OUT.read_text("utf-8"))))


def table(outcome: dict[str, Any]) -> str:
    lines = ["| items | loss | step | x as fast as `softmax` | memory |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['items']:,} | {row['loss']} | {row['ms']:,.0f} ms | {row['times_softmax']} | "
        f"{row['mib']:,.0f} MiB |"
        for row in outcome["rows"]
    ]
    lines += ["", f"{outcome['targets']:,} targets per step; {where(outcome)}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
