"""What `python -m experiments` does, once the command line is parsed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.results import write_json
from experiments import attention, timing
from experiments.cells import Cell, of_table, select
from experiments.collect import collect
from experiments.comparisons import compare_all
from experiments.datasets import ALL, is_given, open_dataset
from experiments.outcomes import Options
from experiments.pages import write_pages
from experiments.progress import Deadline, print_line
from experiments.queue import summary, train_all
from linrec import InputError

TABLES = (
    "overall", "efficient", "seeds", "scaling", "lengths", "ablation", "heatmap", "conditions",
    "beyond", "default", "repeats", "reach",
)  # fmt: skip


def reproduce(tables: Sequence[str], options: Options) -> bool:
    """Train what is missing of the tables and write the pages; False after Ctrl-C."""
    console, names, deadline = Console(), check_tables(tables), Deadline(options.hours)
    cells = select(names, options.cells)
    if not train_all(cells, options, console, deadline):
        return False
    _analyse(names, cells, options, console)
    if not deadline.passed:
        _time(names, options, console)
    render(options)
    return True


def take_over(tables: Sequence[str], folder: Path, options: Options) -> None:
    """Copy what another clone has finished, compare it where the ranks exist, write the pages."""
    console, names = Console(), check_tables(tables)
    cells = select(names, options.cells)
    copied = collect(cells, folder, options)
    for name in copied:
        print_line(console, f"copied {name}")
    print_line(console, f"{len(copied)} files copied from {folder}")
    _analyse(names, cells, options, console)
    render(options)


def dry_run(tables: Sequence[str], options: Options) -> None:
    """List the state of every cell."""
    console = Console()
    for line in summary(select(check_tables(tables), options.cells), options):
        print_line(console, line)


def render(options: Options) -> None:
    """Write the pages from the results, without training anything."""
    report = write_pages(options)
    print_line(Console(), f"{report} is the report; docs/results.md has the same content")


def _analyse(
    tables: Sequence[str], cells: Sequence[Cell], options: Options, console: Console
) -> None:
    """Everything that is derived from trained cells."""
    for name in ALL:
        write_statistics(name, options)
    compare_all([cell for table in tables for cell in of_table(table)], options)
    if {"heatmap", "conditions"} & set(tables):
        _measure_attention(cells, options, console)


def _time(tables: Sequence[str], options: Options, console: Console) -> None:
    jobs = {
        "scaling": timing.jobs_of_backbones,
        "lengths": timing.jobs_of_lengths,
        "reach": timing.jobs_of_reach,
    }
    for table in [table for table in jobs if table in tables]:
        print_line(console, f"{table}: timing; nothing else should run on this machine meanwhile")
        timing.measure_all(jobs[table](options), options.results / table, options)


def write_statistics(name: str, options: Options) -> None:
    """What Table 1 needs of a dataset, so that the page can be written without it."""
    path, given = options.results / name / "statistics.json", options.data.get(name)
    if path.exists() or not is_given(name, given, options.runs):
        return
    data = open_dataset(name, given, options.runs)
    names = ("users", "items", "events", "sparsity", "lengths", "tied_share")
    statistics = {name: data.summary[name] for name in names}
    write_json(path, {"fingerprint": data.fingerprint, **statistics})


def _measure_attention(cells: Sequence[Cell], options: Options, console: Console) -> None:
    for cell in of_table("heatmap"):
        trained = options.outcome(cell) is not None and options.folder(cell).exists()
        available = is_given(cell.dataset, options.data.get(cell.dataset), options.runs)
        if cell in cells and trained and available and not attention.is_current(cell, options):
            print_line(console, f"measuring the attention of {cell.name}")
            data = open_dataset(cell.dataset, options.data.get(cell.dataset), options.runs)
            attention.measure(cell, options, data)


def check_tables(names: Sequence[str]) -> tuple[str, ...]:
    unknown = [name for name in names if name not in (*TABLES, "all")]
    if unknown:
        raise InputError(f"there is no table {unknown[0]!r}; choose from {', '.join(TABLES)}, all")
    return TABLES if "all" in names else tuple(names)
