"""Is one cell better than another, user by user? From the ranks in their run folders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from benchmarks.environment import environment
from benchmarks.results import write_json
from experiments.cells import ABLATED, EFFICIENT, Cell, at_equal_time
from experiments.outcomes import Options, Outcome, model_of, read
from experiments.training import METRICS, PROTOCOLS
from linrec.evaluation import compare, comparison_to_dict, load_ranks


def others(cell: Cell) -> list[Cell]:
    """What a cell is held against: without LinRec, and the variants with it."""
    if cell.minutes is not None:
        every = [one for one in at_equal_time() if one.attention == cell.attention]
        return [one for one in every[:1] if one != cell]
    if cell.variant:
        return [replace(cell, variant="", settings={})]
    against = [] if cell.attention == "softmax" else ["softmax"]
    if cell.attention in {*EFFICIENT, *ABLATED} - {"linrec"}:
        against.append("linrec")
    return [replace(cell, attention=name) for name in against]


def place(cell: Cell, other: Cell, options: Options) -> Path:
    return options.results / cell.dataset / "compare" / f"{other.name}--{cell.name}.json"


def compare_all(cells: Iterable[Cell], options: Options) -> None:
    """Every comparison that both run folders are there for and that is not up to date."""
    for cell in cells:
        for other in others(cell):
            _compare(cell, other, options)


def _compare(cell: Cell, other: Cell, options: Options) -> None:
    outcomes = [options.outcome(one) for one in (other, cell)]
    if any(one is None or "evaluations" not in one for one in outcomes):
        return
    known = found(cell, other, options)
    ranks = {
        protocol: [options.folder(one) / "evaluation" / f"test-{protocol}.parquet"
                   for one in (other, cell)]
        for protocol in PROTOCOLS
    }  # fmt: skip
    if known is not None or not all(path.exists() for paths in ranks.values() for path in paths):
        return
    tests = {
        f"test-{protocol}": comparison_to_dict(
            compare(load_ranks(paths[0]), load_ranks(paths[1]), METRICS)
        )
        for protocol, paths in ranks.items()
    }
    of = [model_of(one) for one in outcomes if one is not None]
    told = f"linrec compare runs/{other.name} runs/{cell.name} --json --protocol full|pop100"
    write_json(
        place(cell, other, options),
        {"name": cell.name, "against": other.name, "command": told, **environment(),
         "of": of, "tests": tests},
    )  # fmt: skip


def found(cell: Cell, other: Cell, options: Options) -> Outcome | None:
    """The comparison of the two as they are now; none if one has been trained on since."""
    known = read(place(cell, other, options))
    outcomes = [options.outcome(one) for one in (other, cell)]
    of = [model_of(one) for one in outcomes if one is not None]
    return known if known is not None and known["of"] == of else None
