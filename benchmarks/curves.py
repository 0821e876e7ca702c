"""Learning with and without kernels: the same curve?

    .venv/bin/python -m benchmarks.curves            # ML-1M, 3 epochs each
    .venv/bin/python -m benchmarks.curves --events LOG --epochs 1 --out elsewhere.json

Trains the paper's SASRec with linrec-decay twice from one seed, by `linrec train`: once with the
compiled kernels and once with LINREC_KERNELS=off. Draws are the same, so the two differ by rounding
alone. Writes results/benchmarks/curves.json and the table of docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT, environment
from benchmarks.results import OUT_FOLDER, PAGE, between, where, write_json
from linrec import ops
from linrec.runs.run import Run

OUT = OUT_FOLDER / "curves.json"
KINDS = {"with": {}, "without": {"LINREC_KERNELS": "off"}}


def main() -> None:
    args = _arguments()
    if ops.kernels().startswith("off"):
        raise SystemExit(f"the kernels are {ops.kernels()}")
    curves = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        _linrec("prepare", args.events, "--out", data, "--min-item-events", 5)
        for kind, variables in KINDS.items():
            run = Path(folder) / kind
            _linrec(
                "train", data, "--out", run, "--recipe", args.recipe, "--attention",
                "linrec-decay", "--epochs", args.epochs,
                OMP_NUM_THREADS=str(args.threads), **variables,
            )  # fmt: skip
            curves[kind] = Run.progress_of(run).history
            print(kind, curves[kind])
    outcome = {
        "command": "python -m benchmarks.curves " + " ".join(sys.argv[1:]),
        **environment(),
        "threads": args.threads,
        "kernels": ops.kernels(),
        "curves": curves,
    }
    write_json(args.out, outcome)
    print(f"wrote {args.out}")
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def rendered(page: str) -> str:
    """docs/performance.md with the table between its markers replaced."""
    return between(page, "curves", table(json.loads(OUT.read_text("utf-8"))))


def table(outcome: dict[str, Any]) -> str:
    lines = [
        "| epoch | loss with kernels | without | validation NDCG@10 with | without |",
        "|---|---|---|---|---|",
    ]
    for fast, slow in zip(*(outcome["curves"][kind] for kind in KINDS), strict=True):
        lines.append(
            f"| {fast['epoch']:.0f} | {fast['loss']:.4f} | {slow['loss']:.4f} | "
            f"{fast['ndcg@10']:.4f} | {slow['ndcg@10']:.4f} |"
        )
    return "\n".join([*lines, "", where(outcome)]) + "\n"


def _linrec(*arguments: Any, **variables: str) -> None:
    given = [str(Path(sys.executable).with_name("linrec")), *map(str, arguments)]
    done = subprocess.run(
        given, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"linrec {' '.join(given[1:])} failed:\n{done.stderr[-2000:]}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=Path, default=ROOT.parent / "shared/data/ml-1m")
    parser.add_argument("--recipe", default="paper-ml-1m")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
