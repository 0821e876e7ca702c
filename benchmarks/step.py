"""Where the time of a training step goes, and what was won.

    .venv/bin/python -m benchmarks.step             # seconds per million targets, before and after
    .venv/bin/python -m benchmarks.step --profile   # and where they go, by torch.profiler
    .venv/bin/python -m benchmarks.step --items 3416 --targets 400 --repeats 1

SASRec with linrec-decay in the paper's size for ML-1M (d 128, 8 heads, 2 layers, windows of 200),
on its catalogue and on one of 200,000 items. Every variant puts one part back to what torch has;
all take turns within one process, a single one where a step takes over half a minute. Run it while
nothing else runs. Writes results/benchmarks/step.json and the tables of docs/performance.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.measuring import ITEMS, arguments, training_step, write
from benchmarks.parts import shares
from benchmarks.results import OUT_FOLDER, PAGE, between, where
from benchmarks.run import in_turns
from linrec.losses import LOSSES, ItemVectors, Loss
from linrec.types import SeenItems

WINDOW = 200
OUT = OUT_FOLDER / "step.json"


class TorchChunks(Loss):
    """The whole softmax by torch's own chunks."""

    def __call__(
        self, hidden: Tensor, targets: Tensor, items: ItemVectors, seen: SeenItems | None = None
    ) -> Tensor:
        assert seen is None, "torch's loss leaves nothing out"
        options = torch.nn.LinearCrossEntropyOptions()
        vectors = items.all().vectors[1:]
        loss: Tensor = F.linear_cross_entropy(hidden, vectors, targets - 1, options=options)
        return loss


@contextmanager
def as_it_is() -> Iterator[None]:
    yield


@contextmanager
def torch_loss() -> Iterator[None]:
    with patch.dict(LOSSES, softmax=TorchChunks):
        yield


@contextmanager
def torch_dropout() -> Iterator[None]:
    with (
        patch("linrec.layers.block.Dropout", nn.Dropout),
        patch("linrec.layers.stack.Dropout", nn.Dropout),
    ):
        yield


@contextmanager
def both() -> Iterator[None]:
    with torch_loss(), torch_dropout():
        yield


VARIANTS: dict[str, Callable[[], Any]] = {
    "as it is": as_it_is,
    "torch's linear_cross_entropy": torch_loss,
    "torch's dropout": torch_dropout,
    "both": both,
}


def main() -> None:
    parser = arguments(__doc__, OUT)
    parser.add_argument("--items", type=int, nargs="+", default=[ITEMS, 200_000])
    parser.add_argument(
        "--profile", action="store_true", help="also profile the share of each part"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for n_items in args.items:
        jobs = {name: made(name, n_items, args.targets) for name in VARIANTS}
        best = in_turns(jobs, args.repeats, once=30)
        for name, seconds in best.items():
            per_million = 1e6 * seconds / (args.targets // WINDOW * WINDOW)
            rows.append(
                {
                    "items": n_items,
                    "variant": name,
                    "seconds_a_million_targets": round(per_million, 1),
                    "times_as_it_is": round(seconds / best["as it is"], 3),
                }
            )
            print(rows[-1])
        if args.profile:
            found = shares(jobs["as it is"], args.repeats)
            parts += [{"items": n_items, "part": part, "share": share} for part, share in found]
            for part, share in found:
                print(f"{n_items:>9,} items  {part:<22} {share:>6.1%}")
    before = json.loads(OUT.read_text("utf-8")).get("parts", []) if OUT.exists() else []
    write(
        args.out,
        {
            "threads": args.threads,
            "targets": args.targets,
            "rows": rows,
            "parts": parts or before,
        },
    )
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def made(variant: str, n_items: int, targets: int) -> Callable[[], None]:
    with VARIANTS[variant]():
        return training_step(WINDOW, n_items, targets=targets)


def rendered(page: str) -> str:
    """docs/performance.md with the tables between its markers replaced."""
    found = json.loads(OUT.read_text("utf-8"))
    lines = ["| items | step with | s / million targets | x as it is |", "|---|---|---|---|"]
    lines += [
        f"| {row['items']:,} | {row['variant']} | {row['seconds_a_million_targets']:,} | "
        f"{row['times_as_it_is']:.2f} |"
        for row in found["rows"]
    ]
    lines += ["", f"{found['targets']:,} targets per step; {where(found)}"]
    page = between(page, "step", "\n".join(lines) + "\n")
    if not found["parts"]:
        return page
    catalogues = list(dict.fromkeys(row["items"] for row in found["parts"]))
    share = {(row["part"], row["items"]): row["share"] for row in found["parts"]}
    lines = [
        f"| part | {' | '.join(f'{n:,} items' for n in catalogues)} |",
        "|---" * (1 + len(catalogues)) + "|",
    ]
    for part in dict.fromkeys(row["part"] for row in found["parts"]):
        cells = " | ".join(f"{share.get((part, n), 0.0):.1%}" for n in catalogues)
        lines.append(f"| {part} | {cells} |")
    return between(page, "parts", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
