"""What `python -m experiments` does, once the command line is parsed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from benchmarks.results import write_json
from experiments import attention, timing
from experiments.cells import Cell, chosen, of_table
from experiments.comparisons import compare_all
from experiments.datasets import DATASETS, is_given, open_dataset
from experiments.outcomes import Options
from experiments.pages import write_pages
from experiments.queue import listed, work
from experiments.watch import say
from linrec import InputError

TABLES = (
    "overall", "efficient", "scaling", "lengths", "ablation", "heatmap", "conditions", "beyond",
)  # fmt: skip


def reproduce(
    tables: Sequence[str], options: Options, *, render: bool = False, dry_run: bool = False
) -> bool:
    """Fill what is missing of the tables and write the pages; False if Ctrl-C came first."""
    console, wanted = Console(), _tables(tables)
    cells = chosen(wanted, options.cells)
    if dry_run:
        for line in listed(cells, options):
            say(console, line)
        return True
    if not render:
        if not work(cells, options, console):
            return False
        _analyse(wanted, cells, options, console)
    say(console, f"{write_pages(options)} is the report, docs/results.md the same for a repository")
    return True


def _analyse(
    tables: Sequence[str], cells: Sequence[Cell], options: Options, console: Console
) -> None:
    """What is made of trained cells, and what needs none."""
    for name in DATASETS:
        write_statistics(name, options)
    compare_all([cell for table in tables for cell in of_table(table)], options)
    if {"heatmap", "conditions"} & set(tables):
        _look(cells, options, console)
    jobs = {"scaling": timing.jobs_of_backbones, "lengths": timing.jobs_of_lengths}
    for table in [table for table in jobs if table in tables]:
        say(console, f"{table}: timing; nothing else should run on this machine meanwhile")
        timing.measured(jobs[table](options), options.results / table, options)


def write_statistics(name: str, options: Options) -> None:
    """What Table 1 needs of a dataset, so that the page can be written without it."""
    place, given = options.results / name / "statistics.json", options.data.get(name)
    if place.exists() or not is_given(name, given, options.runs):
        return
    data = open_dataset(name, given, options.runs)
    known = ("users", "items", "events", "sparsity", "lengths", "tied_share")
    write_json(
        place, {"fingerprint": data.fingerprint, **{key: data.summary[key] for key in known}}
    )


def _look(cells: Sequence[Cell], options: Options, console: Console) -> None:
    for cell in of_table("heatmap"):
        trained = options.outcome(cell) is not None and options.folder(cell).exists()
        if cell in cells and trained and not attention.is_looked_at(cell, options):
            say(console, f"looking at the attention of {cell.name}")
            data = open_dataset(cell.dataset, options.data.get(cell.dataset), options.runs)
            attention.look(cell, options, data)


def _tables(asked: Sequence[str]) -> tuple[str, ...]:
    unknown = [name for name in asked if name not in (*TABLES, "all")]
    if unknown:
        raise InputError(f"there is no table {unknown[0]!r}; choose from {', '.join(TABLES)}, all")
    return TABLES if "all" in asked else tuple(asked)
