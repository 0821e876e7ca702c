"""Make the tables and figures of the LinRec paper, and the page that shows them.

    python -m experiments all --data ml-1m=ml-1m.inter.gz --data gowalla=gowalla.inter.gz
    python -m experiments overall --data ml-1m=ml-1m.inter.gz --cells 'ml-1m-sasrec-*' --threads 1
    python -m experiments all --data ml-1m=ml-1m.inter.gz --hours 8
    python -m experiments repeats --data gowalla-checkins=gowalla-checkins.inter.gz
    python -m experiments overall efficient --dry-run
    python -m experiments all --collect ../other-clone/results --runs ../other-clone/runs
    python -m experiments all --render

Each cell of a table is a run, and every cell of a table trains for the same number of epochs.
Finished cells are not repeated, interrupted ones are resumed, and several processes may share the
work: each skips the cells that another one is training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.command import (
    TABLES,
    check_tables,
    dry_run,
    render,
    reproduce,
    take_over,
)
from experiments.datasets import ALL
from experiments.outcomes import Options
from linrec import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; a mistake of the user is one sentence and exit code 2."""
    given = parser().parse_args(arguments)
    try:
        finished = _run(given, _options(given))
    except InputError as error:
        print(f"experiments: {error}", file=sys.stderr)
        return 2
    if not finished:
        print("Stopped; the same command resumes from here.")
    return 0 if finished else 130


def _run(given: argparse.Namespace, options: Options) -> bool:
    if given.dry_run:
        dry_run(given.table, options)
    elif given.render:
        check_tables(given.table)
        render(options)
    elif given.collect:
        take_over(given.table, given.collect, options)
    else:
        return reproduce(given.table, options)
    return True


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("table", nargs="+", metavar="TABLE", help=f"{', '.join(TABLES)} or all")
    add("--data", action="append", default=[], metavar="NAME=PATH",
        help="events or a prepared dataset, as ml-1m=PATH or gowalla=PATH")  # fmt: skip
    add("--runs", type=Path, default=Options.runs, help="folder of the run folders (runs)")
    add("--results", type=Path, default=Options.results, help="folder of the JSON files (results)")
    add("--cells", metavar="GLOB", help="only the cells with such a name, as 'ml-1m-sasrec-*'")
    add("--epochs", type=_positive, help="epochs of every cell, in place of its budget")
    add("--hours", type=float, help="stop after so many hours; the same command resumes")
    add("--threads", type=_positive, help="CPU threads of this process")
    add("--rounds", type=_positive, default=Options.rounds,
        help="rounds of each timing, of which the fastest counts (4)")  # fmt: skip
    add("--recipe", help="a recipe in place of the paper's, to try everything at a small size")
    add("--collect", type=Path, metavar="RESULTS",
        help="train nothing; copy what the results folder of another clone has finished, "
        "compare it from the run folders in --runs, and write the pages")  # fmt: skip
    add("--render", action="store_true", help="train nothing, only write the pages")
    add("--dry-run", action="store_true", help="list what is finished and estimate the rest")
    return made


def _options(given: argparse.Namespace) -> Options:
    return Options(
        data=_paths(given.data), runs=given.runs, results=given.results, cells=given.cells,
        recipe=given.recipe, epochs=given.epochs, hours=given.hours, threads=given.threads,
        rounds=given.rounds,
    )  # fmt: skip


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _paths(given: Sequence[str]) -> dict[str, Path]:
    paths = {}
    for one in given:
        name, sign, path = one.partition("=")
        if not sign or name not in ALL:
            raise InputError(f"--data {one} is not NAME=PATH with a NAME of {', '.join(ALL)}")
        if not Path(path).exists():
            raise InputError(f"--data {one}: there is nothing at {path}; check the path")
        paths[name] = Path(path)
    return paths


if __name__ == "__main__":
    sys.exit(main())
