"""Training the cells: finished ones are not repeated, those of another process are skipped."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from filelock import FileLock, Timeout
from rich.console import Console

from benchmarks.results import write_json
from experiments.cells import Cell
from experiments.datasets import is_given, open_dataset
from experiments.outcomes import Options
from experiments.progress import (
    CellLogger,
    Deadline,
    count_finished,
    duration,
    print_line,
    remaining,
)
from experiments.training import evaluate, train
from linrec import load
from linrec.runs.run import Run


def train_all(
    cells: Sequence[Cell], options: Options, console: Console, deadline: Deadline | None = None
) -> bool:
    """Train every cell that is not finished, until the deadline; False after Ctrl-C.

    Several processes may work on the same cells: each holds a lock on the one it trains, which
    the operating system releases if the process dies.
    """
    deadline = deadline or Deadline(options.hours)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    options.runs.mkdir(parents=True, exist_ok=True)
    for name in {cell.dataset for cell in cells if not _has_data(cell, options)}:
        print_line(console, f"cells of {name} are skipped; give the data as --data {name}=PATH")
    cells = [cell for cell in cells if _has_data(cell, options)]
    for number, cell in enumerate(cells):
        if deadline.passed:
            rest = len([one for one in cells[number:] if not options.finished(one)])
            print_line(console, f"the hours are used up; {rest} cells are left to resume")
            return True
        logger = CellLogger(cell, cells, options, console)
        logger.deadline = deadline
        if not _with_lock(cell, options, logger):
            return False
    return True


def _with_lock(cell: Cell, options: Options, logger: CellLogger) -> bool:
    try:
        with FileLock(options.runs / f".{cell.name}.lock", timeout=0):
            return _train_if_unfinished(cell, options, logger)
    except Timeout:
        print_line(logger.console, f"{cell.name}: another process is training it; skipped")
        return True


def _has_data(cell: Cell, options: Options) -> bool:
    return options.finished(cell) or is_given(
        cell.dataset, options.data.get(cell.dataset), options.runs
    )


def _train_if_unfinished(cell: Cell, options: Options, logger: CellLogger) -> bool:
    if options.finished(cell):  # checked under the lock: another process may just have ended it
        _add_figures_by_length(cell, options)
        return True
    data = open_dataset(cell.dataset, options.data.get(cell.dataset), options.runs)
    verb = "resumes" if options.folder(cell).exists() else "starts"
    print_line(logger.console, f"{count_finished(logger.cells, options)} {cell.name} {verb}")
    return train(cell, options, data, logger)


def _add_figures_by_length(cell: Cell, options: Options) -> None:
    """Older results lack some figures of the tables and get them from their run folder."""
    known, folder = options.outcome(cell), options.folder(cell)
    if known is None or "diverged" in known or known.get("by_length"):
        return
    given = options.data.get(cell.dataset)
    available = is_given(cell.dataset, given, options.runs)
    if available and Run.progress_of(folder).epoch == known["epochs"]:
        data = open_dataset(cell.dataset, given, options.runs)
        write_json(options.path(cell), known | evaluate(load(folder), folder, data))


def summary(cells: Sequence[Cell], options: Options) -> list[str]:
    """What would be done, a line per cell."""
    lines = []
    for cell in cells:
        progress = Run.progress_of(options.folder(cell))
        state = f"{progress.epoch} of {options.epochs_of(cell)} epochs done"
        if options.finished(cell):
            state = "finished"
        elif not options.folder(cell).exists():
            state = "not started"
        lines.append(f"{cell.name:<44} {state}")
    left = remaining(cells, options)
    missing = sum(not options.finished(cell) for cell in cells)
    lines.append(
        f"{len(cells) - missing} of {len(cells)} cells finished"
        + (f"; the rest takes {duration(left)} at most" if left and missing else "")
    )
    return lines
