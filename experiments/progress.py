"""What is printed while a cell trains, and how long the remaining cells will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from rich.console import Console

from experiments.cells import Cell
from experiments.outcomes import Options
from linrec.runs.checkpoint import Progress
from linrec.runs.history import Row
from linrec.runs.run import Run
from linrec.training.callbacks import ConsoleProgress

HOUR = 3_600.0


class Deadline:
    """When this process stops, if it has a budget of hours."""

    def __init__(self, hours: float | None) -> None:
        self.end = float("inf") if hours is None else time.monotonic() + HOUR * hours

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self.end


class CellLogger(ConsoleProgress):
    """A line per epoch, with the number of finished cells and an estimate of the rest."""

    def __init__(
        self, cell: Cell, cells: Sequence[Cell], options: Options, console: Console
    ) -> None:
        super().__init__(console)
        self.cell, self.cells, self.options = cell, cells, options
        self.deadline = Deadline(None)
        self.began, self.before = 0.0, seconds_spent(Run.progress_of(options.folder(cell)))
        self.stopped: Literal["", "hours", "time"] = ""
        self.share = 0.0  # of the epoch it was stopped in
        self.targets = self.done = 0

    def on_epoch_start(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        self.targets, self.done = targets, done
        self.began = self.began or time.monotonic()
        super().on_epoch_start(epoch, epochs, targets, done)

    def on_batch_end(self, loss: float, targets: int) -> None:
        super().on_batch_end(loss, targets)
        self.done += targets
        seconds, minutes = time.monotonic() - self.began + self.before, self.cell.minutes
        if minutes is not None and seconds > 60 * minutes:
            self.stopped = "time"
        elif self.deadline.passed:
            self.stopped = "hours"
        if self.stopped:
            self.share = self.done / max(self.targets, 1)
            self.stop_training = True

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        self._close()
        left = remaining(self.cells, self.options)
        self.on_message(
            f"{count_finished(self.cells, self.options)} {self.cell.name}  "
            f"epoch {row['epoch']:.0f} of at most {self.options.epochs_of(self.cell)}  "
            f"loss {row['loss']:.4f}  NDCG@10 {row['ndcg@10']:.4f}{' best' if best else ''}  "
            f"{row['seconds']:.0f} + {row['valid_seconds']:.0f} s  "
            f"{'' if left is None else duration(left) + ' left at most'}"
        )


def remaining(cells: Sequence[Cell], options: Options) -> float | None:
    """Seconds until all cells are finished; None while no epoch was timed.

    An epoch is assumed to take as long as those of the same cell, backbone or dataset did.
    """
    known = {cell: Run.progress_of(options.folder(cell)) for cell in cells}
    total = 0.0
    for cell in cells:
        if options.finished(cell):
            continue
        if cell.minutes is not None:
            total += max(0.0, 60 * cell.minutes - seconds_spent(known[cell]))
            continue
        epoch = _epoch_seconds(cell, known)
        if epoch is None:
            return None
        total += epoch * max(0, options.epochs_of(cell) - known[cell].epoch)
    return total


def _epoch_seconds(cell: Cell, known: dict[Cell, Progress]) -> float | None:
    similar = (
        [cell],
        [other for other in known if (other.dataset, other.backbone, other.attention)
         == (cell.dataset, cell.backbone, cell.attention)],
        [other for other in known if (other.dataset, other.backbone)
         == (cell.dataset, cell.backbone)],
        [other for other in known if other.dataset == cell.dataset],
        list(known),
    )  # fmt: skip
    for some in similar:
        rows = [row for other in some for row in known[other].history]
        if rows:
            return sum(map(_row_seconds, rows)) / len(rows)
    return None


def count_finished(cells: Sequence[Cell], options: Options) -> str:
    return f"[{sum(map(options.finished, cells))}/{len(cells)}]"


def seconds_spent(progress: Progress) -> float:
    """Seconds of training and validation, over all the processes that trained it."""
    return progress.seconds + sum(map(_row_seconds, progress.history))


def _row_seconds(row: Row) -> float:
    return row["seconds"] + row["valid_seconds"]


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def print_line(console: Console, line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True, markup=False)
