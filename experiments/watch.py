"""What a cell tells while it trains, and how long all that is left will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from rich.console import Console

from experiments.cells import Cell
from experiments.outcomes import Options
from linrec.training.checkpoint import Progress, read_progress
from linrec.training.history import Row
from linrec.training.watch import ConsoleWatch, Stop


class CellWatch(ConsoleWatch):
    """A line an epoch that also says how many cells are done and how long the rest may take."""

    def __init__(
        self, cell: Cell, cells: Sequence[Cell], options: Options, console: Console
    ) -> None:
        super().__init__(console)
        self.cell, self.cells, self.options = cell, cells, options
        self.began, self.before = 0.0, spent(read_progress(options.folder(cell)))
        self.stopped: Literal["", "budget", "time"] = ""
        self.share = 0.0  # of the epoch it was stopped in
        self.targets = self.done = 0

    def begin(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        self.targets, self.done = targets, done
        self.began = self.began or time.monotonic()
        super().begin(epoch, epochs, targets, done)

    def step(self, loss: float, targets: int) -> None:
        super().step(loss, targets)
        self.done += targets
        now = time.monotonic() - self.began
        budget, minutes = self.options.budget, self.cell.minutes
        if minutes is not None and now + self.before > 60 * minutes:
            self.stopped = "time"
        elif budget is not None and now > 60 * budget:
            self.stopped = "budget"
        if self.stopped:
            self.share = self.done / max(self.targets, 1)
            raise Stop

    def end(self, row: Row, *, best: bool) -> None:
        self.close()
        left = remaining(self.cells, self.options)
        self.say(
            f"{counted(self.cells, self.options)} {self.cell.name}  "
            f"epoch {row['epoch']:.0f} of at most {self.options.epochs_of(self.cell)}  "
            f"loss {row['loss']:.4f}  NDCG@10 {row['ndcg@10']:.4f}{' best' if best else ''}  "
            f"{row['seconds']:.0f} + {row['valid_seconds']:.0f} s  "
            f"{'' if left is None else told(left) + ' left at most'}"
        )


def remaining(cells: Sequence[Cell], options: Options) -> float | None:
    """Seconds until all are at their end, if none stops early; None while none was timed.

    An epoch is taken to last as long as those of the same cell, backbone or dataset did.
    """
    known = {cell: read_progress(options.folder(cell)) for cell in cells}
    total = 0.0
    for cell in cells:
        if options.finished(cell):
            continue
        if cell.minutes is not None:
            total += max(0.0, 60 * cell.minutes - spent(known[cell]))
            continue
        one = _epoch_seconds(cell, known)
        if one is None:
            return None
        rest = one * max(0, options.epochs_of(cell) - known[cell].epoch)
        total += rest if options.budget is None else min(rest, 60 * options.budget)
    return total


def _epoch_seconds(cell: Cell, known: dict[Cell, Progress]) -> float | None:
    alike = (
        [cell],
        [other for other in known if (other.dataset, other.backbone)
         == (cell.dataset, cell.backbone)],
        [other for other in known if other.dataset == cell.dataset],
        list(known),
    )  # fmt: skip
    for some in alike:
        rows = [row for other in some for row in known[other].history]
        if rows:
            return sum(map(_took, rows)) / len(rows)
    return None


def counted(cells: Sequence[Cell], options: Options) -> str:
    return f"[{sum(map(options.finished, cells))}/{len(cells)}]"


def spent(progress: Progress) -> float:
    """Seconds of training and validation, over all the sittings it took."""
    return progress.seconds + sum(map(_took, progress.history))


def _took(row: Row) -> float:
    return row["seconds"] + row["valid_seconds"]


def told(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def say(console: Console, sentence: str) -> None:
    console.print(sentence, highlight=False, soft_wrap=True, markup=False)
