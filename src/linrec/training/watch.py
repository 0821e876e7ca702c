"""What a training tells while it runs: a bar on a terminal, one line an epoch anywhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from linrec.training.history import Row


class Stop(KeyboardInterrupt):
    """Raised by a watch in `step` to end a training as Ctrl-C does: cleanly, to be resumed."""


class Watch:
    """Silent; the base of those that speak."""

    def begin(self, epoch: int, epochs: int, targets: int, done: int) -> None: ...

    def step(self, loss: float, targets: int) -> None: ...

    def validate(self, done: int, total: int) -> None: ...

    def end(self, row: Row, *, best: bool) -> None: ...

    def say(self, sentence: str) -> None: ...

    def close(self) -> None: ...


class ConsoleWatch(Watch):
    """Loss, speed and time left of the epoch under way; a line for each epoch that is done."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[speed]}  {task.fields[loss]}"),
            TimeRemainingColumn(), console=self.console, transient=True,
            disable=not self.console.is_terminal,
        )  # fmt: skip
        self.task: Any = None

    def begin(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        self.close()
        self.task = self.bar.add_task(
            f"epoch {epoch}/{epochs}", total=targets, completed=done, loss="", speed=""
        )
        self.bar.start()

    def step(self, loss: float, targets: int) -> None:
        speed = self.bar.tasks[0].speed if self.bar.tasks else None
        self.bar.update(
            self.task, advance=targets, loss=f"loss {loss:.3f}",
            speed=f"{speed:,.0f} targets/s" if speed else "",
        )  # fmt: skip

    def validate(self, done: int, total: int) -> None:
        self.bar.update(self.task, loss=f"validating {done:,}/{total:,} users")

    def end(self, row: Row, *, best: bool) -> None:
        self.close()
        self.console.print(
            f"epoch {row['epoch']:>3}  loss {row['loss']:.4f}  NDCG@10 {row['ndcg@10']:.4f}  "
            f"Recall@10 {row['recall@10']:.4f}  {row['seconds']:.0f} + {row['valid_seconds']:.0f} s"
            + ("  best" if best else ""),
            highlight=False,
        )

    def say(self, sentence: str) -> None:
        self.console.print(sentence, highlight=False, soft_wrap=True, markup=False)

    def close(self) -> None:
        self.bar.stop()
        if self.task is not None:
            self.bar.remove_task(self.task)
            self.task = None


class TensorBoardWatch(Watch):
    """Scalars for TensorBoard, if it is installed."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # opened with the first epoch: it makes its folder, and the run's folder comes before that
        self.open: Callable[[], Any] = partial(SummaryWriter, str(folder))
        self.writer: Any = None

    def end(self, row: Row, *, best: bool) -> None:
        del best
        self.writer = self.writer or self.open()
        for name, value in row.items():
            if name != "epoch":
                self.writer.add_scalar(name, value, int(row["epoch"]))
        self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class Watches(Watch):
    """Tell several."""

    def __init__(self, *watches: Watch) -> None:
        self.watches = watches

    def begin(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        for watch in self.watches:
            watch.begin(epoch, epochs, targets, done)

    def step(self, loss: float, targets: int) -> None:
        for watch in self.watches:
            watch.step(loss, targets)

    def validate(self, done: int, total: int) -> None:
        for watch in self.watches:
            watch.validate(done, total)

    def end(self, row: Row, *, best: bool) -> None:
        for watch in self.watches:
            watch.end(row, best=best)

    def say(self, sentence: str) -> None:
        for watch in self.watches:
            watch.say(sentence)

    def close(self) -> None:
        for watch in self.watches:
            watch.close()
