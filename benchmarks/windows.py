"""How time and memory of a training step grow with the window, at the same number of targets.

    .venv/bin/python -m benchmarks.windows                                           # all
    .venv/bin/python -m benchmarks.windows --windows 200 400 --targets 800 --repeats 1

SASRec in the paper's size on ML-1M's catalogue: as many targets per step at every window, so that a
linear mechanism should take as long and as much at each. Every window has a process of its own:
memory is how far its steps raise the peak of it. Softmax goes as far as its time allows. Run it
while nothing else runs. Writes results/benchmarks/windows.json and windows.png, and the table of
docs/performance.md.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.measuring import (
    ITEMS,
    PAPER,
    alone,
    arguments,
    seconds_of,
    training_step,
    write,
)
from benchmarks.memory import peak_mb
from benchmarks.results import OUT_FOLDER, PAGE, between, picture, where

OUT = OUT_FOLDER / "windows.json"
MECHANISMS = ("linrec-decay", "softmax")
TARGETS = 16_000


def main() -> None:
    parser = arguments(__doc__, OUT)
    parser.set_defaults(targets=TARGETS)
    parser.add_argument("--windows", type=int, nargs="+", default=[200, 1_000, 4_000, 16_000])
    parser.add_argument(
        "--softmax-up-to", type=int, default=16_000, help="largest window of softmax"
    )
    parser.add_argument(
        "--one", choices=MECHANISMS, help="measure only this one (used by the benchmark itself)"
    )
    args = parser.parse_args()
    if args.one:
        torch.set_num_threads(args.threads)
        print(json.dumps(one(args.one, args.windows[0], args.targets, args.repeats)))
        return
    rows = []
    for window in args.windows:
        for mechanism in MECHANISMS:
            if mechanism == "softmax" and window > args.softmax_up_to:
                continue
            found = alone(
                "benchmarks.windows", one=mechanism, windows=window, targets=args.targets,
                repeats=args.repeats, threads=args.threads,
            )  # fmt: skip
            rows.append({"mechanism": mechanism, "window": window, **found})
            print(rows[-1])
    for row in rows:
        first = next(other for other in rows if other["mechanism"] == row["mechanism"])
        row |= {"times_first": round(row["seconds"] / first["seconds"], 2)}
    write(args.out, {"threads": args.threads, "targets": args.targets, "rows": rows})
    plot(rows, args.targets, args.out.with_suffix(".png"))
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def one(mechanism: str, window: int, targets: int, repeats: int) -> dict[str, float]:
    """The best time of a step, and how far steps raise the peak of memory."""
    model = replace(PAPER, attention=mechanism)
    # a first step on a little of everything, so that code and moments are there already
    training_step(8, ITEMS, targets=8, model=model)()
    step = training_step(window, ITEMS, targets=targets, model=model)
    before = peak_mb()
    seconds = min(seconds_of(step) for _ in range(repeats + 1))
    return {"seconds": round(seconds, 4), "mib": round(peak_mb() - before, 1)}


def rendered(page: str) -> str:
    """docs/performance.md with the table between its markers replaced."""
    return between(page, "windows", table(json.loads(OUT.read_text("utf-8"))))


def table(outcome: dict[str, Any]) -> str:
    lines = ["| window | attention | step | x its first window | memory |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['window']:,} | `{row['mechanism']}` | {row['seconds']:.2f} s | "
        f"{row['times_first']} | {row['mib']:,.0f} MiB |"
        for row in outcome["rows"]
    ]
    lines += ["", f"{outcome['targets']:,} targets per step; {where(outcome)}", ""]
    title = "Time and memory of a target over the window: level is linear"
    return "\n".join([*lines, picture(title, OUT.with_suffix(".png"))]) + "\n"


def plot(rows: list[dict[str, Any]], targets: int, path: Path) -> None:
    """Per target, so that a linear mechanism is a level line."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    kinds = (("seconds", "seconds per million targets", 1e6), ("mib", "KiB per target", 1024.0))
    windows = sorted({row["window"] for row in rows})
    for place, (key, label, scale) in enumerate(kinds, start=1):
        axes = figure.add_subplot(1, 2, place)
        for mechanism in MECHANISMS:
            mine = [row for row in rows if row["mechanism"] == mechanism]
            axes.semilogx(
                [row["window"] for row in mine],
                [row[key] * scale / targets for row in mine],
                marker="o",
                label=mechanism,
            )
        axes.set_xticks(windows, [f"{window:,}" for window in windows])
        axes.minorticks_off()
        # from zero, so that level lines look level
        axes.set_ylim(0, 1.1 * max(row[key] for row in rows) * scale / targets)
        axes.set_xlabel("window (events)")
        axes.set_ylabel(label)
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend()
    FigureCanvasAgg(figure).print_png(str(path))


if __name__ == "__main__":
    main()
