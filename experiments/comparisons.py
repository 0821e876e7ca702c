"""Is one cell better than another, user by user? From the ranks in their run folders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from benchmarks.environment import environment
from benchmarks.results import write_json
from experiments.cells import (
    ABLATED,
    EFFICIENT,
    Cell,
    at_equal_time,
    default_mechanisms,
    default_parts,
    reach,
)
from experiments.datasets import WITH_REPEATS
from experiments.outcomes import Options, Outcome, model_of, read
from experiments.training import METRICS, PROTOCOLS
from linrec.evaluation import compare, comparison_to_dict
from linrec.runs.run import Run


def compared_with(cell: Cell) -> list[Cell]:
    """The cells that a cell is compared with: without LinRec, and LinRec as it is."""
    if cell.minutes is not None:
        same = [one for one in at_equal_time() if one.attention == cell.attention]
        return [one for one in same[:1] if one != cell]
    if cell in (*default_mechanisms(), *default_parts()):
        whole = default_parts()[0]
        return [whole] if cell != whole else []
    if cell.variant.startswith("reads-"):
        whole = next(one for one in reach(cell.dataset) if not one.overrides["max_length"])
        return [whole] if cell != whole else []
    if cell.variant == "default" or cell.dataset in WITH_REPEATS:
        return []
    if cell.variant:
        return [replace(cell, variant="", overrides={})]
    names = [] if cell.attention == "softmax" else ["softmax"]
    if cell.attention in {*EFFICIENT, *ABLATED} - {"linrec"}:
        names.append("linrec")
    return [replace(cell, attention=name) for name in names]


def path(cell: Cell, other: Cell, options: Options) -> Path:
    return options.results / cell.dataset / "compare" / f"{other.name}--{cell.name}.json"


def compare_all(cells: Iterable[Cell], options: Options) -> None:
    """Every comparison that is not up to date and whose run folders both exist."""
    for cell in cells:
        for other in compared_with(cell):
            _compare(cell, other, options)


def _compare(cell: Cell, other: Cell, options: Options) -> None:
    outcomes = [options.outcome(one) for one in (other, cell)]
    if any(one is None or "evaluations" not in one for one in outcomes):
        return
    folders = [options.folder(one) for one in (other, cell)]
    if comparison(cell, other, options) is not None or not all(map(Run.exists, folders)):
        return
    runs = [Run.open(folder) for folder in folders]
    # of runs that keep seen items the name says so
    names = [
        name
        for protocol in PROTOCOLS
        for name in (f"test-{protocol}", f"test-{protocol}-seen")
        if all(run.has_evaluation(name) for run in runs)
    ]
    if not names:
        return
    tests = {
        name: comparison_to_dict(compare(*(run.load_evaluation(name) for run in runs), METRICS))
        for name in names
    }
    of = [model_of(one) for one in outcomes if one is not None]
    command = f"linrec compare runs/{other.name} runs/{cell.name} --json --protocol full|pop100"
    write_json(
        path(cell, other, options),
        {"name": cell.name, "against": other.name, "command": command, **environment(),
         "of": of, "tests": tests},
    )  # fmt: skip


def comparison(cell: Cell, other: Cell, options: Options) -> Outcome | None:
    """The comparison of the two models as they are now; None if one was trained further since."""
    known = read(path(cell, other, options))
    outcomes = [options.outcome(one) for one in (other, cell)]
    of = [model_of(one) for one in outcomes if one is not None]
    return known if known is not None and known["of"] == of else None
