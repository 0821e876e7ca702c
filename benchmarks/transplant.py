"""Speed and memory of other people's models before and after `linrec.replace_attention`.

    .venv/bin/python -m benchmarks.transplant                     # all
    .venv/bin/python -m benchmarks.transplant --models encoder    # torch's alone

Models: `encoder` (torch.nn.TransformerEncoder, here), `recbole` (SASRec) and `bert` (Hugging Face),
each of the latter by the python of its environment (`make envs`). Times are the best of several,
taken in alternation within one run; memory is how far one step raises a fresh process. Figures
are for one training step and for one evaluation of a batch. RecBole switches autograd's anomaly
checks on when it is imported; they stay on, as its users have them. Run it while nothing else runs.
Writes results/benchmarks/transplant.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT, environment
from benchmarks.results import write_json
from benchmarks.transplant_models import HERE, ORIGINAL
from tests.transplant import environments

ENVIRONMENT = {"recbole": "recbole", "bert": "transformers"}
MECHANISMS = (ORIGINAL, "linrec-decay", "linrec")
SECONDS = 3600
OUT, PAGE = ROOT / "results/benchmarks/transplant.json", ROOT / "docs" / "transplant.md"
BEGIN, END = "<!-- transplant -->\n", "<!-- /transplant -->"
TITLES = {
    "encoder": "`nn.TransformerEncoder`",
    "recbole": "RecBole's SASRec",
    "bert": "Hugging Face's BERT",
}


def main() -> None:
    args = _arguments()
    rows, versions = [], {}
    for model in args.models:
        for length in args.lengths:
            found = compared(model, length, args)
            versions |= found["versions"]
            rows += found["rows"]
            for row in found["rows"]:
                print(sentence(row))
    outcome = {
        "command": "python -m benchmarks.transplant " + " ".join(sys.argv[1:]),
        **environment(),
        "threads": args.threads,
        "versions": versions,
        "events_a_batch": args.events,
        "rows": rows,
    }
    write_json(args.out, outcome)
    print(f"wrote {args.out}")
    if args.out == OUT:
        PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")


def rendered(page: str) -> str:
    """docs/transplant.md with the table between its markers replaced."""
    before, rest = page.split(BEGIN)
    rows = json.loads(OUT.read_text("utf-8"))["rows"]
    return before + BEGIN + table(rows) + END + rest.split(END)[1]


def table(rows: list[dict[str, Any]]) -> str:
    """How many times as fast, and how many times less memory, as the original was."""
    lines = ["| model | N | attention | training step | evaluation | memory |", "|" + "---|" * 6]
    for row in rows:
        if row["mechanism"] != ORIGINAL:
            ratios = " | ".join(f"{row[f'{what}_ratio']} x" for what in ("train", "eval", "mib"))
            name, length = TITLES[row["model"]], f"{row['length']:,}"
            lines.append(f"| {name} | {length} | `{row['mechanism']}` | {ratios} |")
    return "\n".join(lines) + "\n"


def compared(model: str, length: int, args: argparse.Namespace) -> dict[str, Any]:
    """Times in turns in one process; peaks in one process each, because a peak never falls."""
    timed = measured(model, length, MECHANISMS, args)
    peaks = {
        name: measured(model, length, (name,), args, "--memory")["rows"][0]["mib"]
        for name in MECHANISMS
    }
    original = timed["rows"][0]
    for row in timed["rows"]:
        row["mib"] = peaks[row["mechanism"]]
        for what in ("train_ms", "eval_ms", "mib"):
            row[f"{what.split('_')[0]}_ratio"] = ratio(original[what], row[what])
    return timed


def ratio(before: float, after: float) -> float | None:
    """How many times less; None where there was too little to tell."""
    return round(before / after, 2) if after > 0 else None


def measured(
    model: str, length: int, names: tuple[str, ...], args: argparse.Namespace, *more: str
) -> dict[str, Any]:
    arguments = [
        model, "--length", str(length), "--mechanisms", *names, "--repeats", str(args.repeats),
        "--events", str(args.events), "--threads", str(args.threads), *more,
    ]  # fmt: skip
    if model in HERE:
        command = [sys.executable, "-m", "benchmarks.transplant_models", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    else:
        name = ENVIRONMENT[model]
        if not environments.is_ready(name):
            raise SystemExit(f".envs/{name} does not exist; run `make envs`, or leave out {model}")
        done = environments.run(name, "benchmarks.transplant_models", *arguments, seconds=SECONDS)
    if done.returncode:
        raise SystemExit(f"{model} at {length} events failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def sentence(row: dict[str, Any]) -> str:
    return (
        f"{row['model']:<8} N {row['length']:>5}  {row['mechanism']:<13}"
        f" train {row['train_ms']:>9.1f} ms ({row['train_ratio']} x)"
        f"  eval {row['eval_ms']:>9.1f} ms ({row['eval_ratio']} x)"
        f"  {row['mib']:>7.0f} MiB ({row['mib_ratio']} x less)"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["encoder", *ENVIRONMENT])
    parser.add_argument("--lengths", type=int, nargs="+", default=[200, 1000, 4000])
    parser.add_argument(
        "--events", type=int, default=8_000, help="events per batch, at every length"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args()


if __name__ == "__main__":
    main()
