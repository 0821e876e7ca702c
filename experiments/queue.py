"""Going through the cells: what is finished is not repeated, what another process does is left."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from filelock import FileLock, Timeout
from rich.console import Console

from benchmarks.results import write_json
from experiments.cells import Cell
from experiments.datasets import is_given, open_dataset
from experiments.outcomes import Options
from experiments.training import evaluated, train
from experiments.watch import CellWatch, counted, remaining, say, told
from linrec import load
from linrec.training.checkpoint import read_progress


def work(cells: Sequence[Cell], options: Options, console: Console) -> bool:
    """Bring every cell to its end; False if Ctrl-C came first.

    Several processes may work on the same cells: each holds a lock on the one it trains, which
    the operating system drops if the process dies.
    """
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    options.runs.mkdir(parents=True, exist_ok=True)
    for name in {cell.dataset for cell in cells if not _has_data(cell, options)}:
        say(console, f"cells of {name} are left out; give it with --data {name}=PATH")
    cells = [cell for cell in cells if _has_data(cell, options)]
    return all(_alone(cell, cells, options, console) for cell in cells)


def _alone(cell: Cell, cells: Sequence[Cell], options: Options, console: Console) -> bool:
    try:
        with FileLock(options.runs / f".{cell.name}.lock", timeout=0):
            return _bring_to_end(cell, cells, options, console)
    except Timeout:
        say(console, f"{cell.name}: another process is at it; left to that one")
        return True


def _has_data(cell: Cell, options: Options) -> bool:
    return options.finished(cell) or is_given(
        cell.dataset, options.data.get(cell.dataset), options.runs
    )


def _bring_to_end(cell: Cell, cells: Sequence[Cell], options: Options, console: Console) -> bool:
    if options.finished(cell):  # asked under the lock: another process may just have been here
        _complete(cell, options)
        return True
    data = open_dataset(cell.dataset, options.data.get(cell.dataset), options.runs)
    say(console, _begins(cell, cells, options))
    return train(cell, options, data, CellWatch(cell, cells, options, console))


def _complete(cell: Cell, options: Options) -> None:
    """Results from before all was recorded that the tables need get it from their run folder."""
    known, folder = options.outcome(cell), options.folder(cell)
    if known is None or "diverged" in known or "by_length" in known:
        return
    given = options.data.get(cell.dataset)
    there = is_given(cell.dataset, given, options.runs)
    if there and read_progress(folder).epoch == known["epochs"]:
        data = open_dataset(cell.dataset, given, options.runs)
        write_json(options.place(cell), known | evaluated(load(folder), folder, data))


def listed(cells: Sequence[Cell], options: Options) -> list[str]:
    """What would be done, a line a cell."""
    lines = []
    for cell in cells:
        progress = read_progress(options.folder(cell))
        state = "finished" if options.finished(cell) else f"{progress.epoch} epochs done"
        if not options.finished(cell) and not options.folder(cell).exists():
            state = "not begun"
        lines.append(f"{cell.name:<44} {state}")
    left = remaining(cells, options)
    missing = sum(not options.finished(cell) for cell in cells)
    lines.append(
        f"{len(cells) - missing} of {len(cells)} cells finished"
        + (f"; the rest takes {told(left)} at most" if left and missing else "")
    )
    return lines


def _begins(cell: Cell, cells: Sequence[Cell], options: Options) -> str:
    verb = "goes on" if options.folder(cell).exists() else "begins"
    return f"{counted(cells, options)} {cell.name} {verb}"
