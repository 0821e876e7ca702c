"""What the trainer calls while it trains: progress on a console, TensorBoard, or your own."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from linrec.evaluation import Evaluation
from linrec.runs.config import RunConfig
from linrec.runs.history import Row
from linrec.types import InputError, argument

LINE_SECONDS = 60.0  # between two lines of progress where there is no terminal


class Callback:
    """Does nothing; override the hooks that you need.

    Set `stop_training` to end the training after the current batch: cleanly, as Ctrl-C does, so
    that it can be resumed.

    Examples:
        >>> from linrec.training.callbacks import Callback
        >>> class StopAtLoss(Callback):
        ...     def on_batch_end(self, loss, targets):
        ...         self.stop_training = loss < 4.0
        >>> model = linrec.Recommender(recipe="small", epochs=1)
        >>> model.fit("data", callbacks=[StopAtLoss()]).trained.progress.epoch <= 1
        True
    """

    stop_training: bool = False

    def on_fit_start(self) -> None:
        """Before anything is read."""

    def on_trial_batch_end(self, done: int, total: int) -> None:
        """done, total: targets of the short trainings that decide on a repeat head, if any."""

    def on_train_start(self, config: RunConfig) -> None:
        """Before the first step, with every setting decided."""

    def on_epoch_start(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        """epoch: from 1.  targets: of this epoch.  done: targets trained before it was resumed."""

    def on_batch_end(self, loss: float, targets: int) -> None:
        """loss: the mean over the targets of this batch.

        On a GPU it is called once for several batches, because reading a loss waits for the device.
        """

    def on_validation_batch_end(self, done: int, total: int) -> None:
        """done, total: users."""

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        """row: loss, validation metrics, seconds and learning rate, as in history.csv."""

    def on_train_end(self) -> None:
        """Always called, also when the training fails or is interrupted."""

    def on_test_batch_end(self, done: int, total: int) -> None:
        """done, total: users. Only trainings that write a run folder evaluate on test."""

    def on_test_end(self, evaluation: Evaluation) -> None:
        """The evaluation on test is written."""

    def on_message(self, message: str) -> None:
        """A sentence for the user."""

    def on_fit_end(self, *, finished: bool) -> None:
        """Always called last; finished: neither failed nor stopped before its end."""


class CallbackList:
    """Calls the hook of each callback in turn."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        # the hooks of anything else would fail in the middle of a training
        given: list[Any] = [*callbacks] if isinstance(callbacks, list | tuple) else [callbacks]
        wrong = [each for each in given if not isinstance(each, Callback)]
        if wrong:
            raise InputError(
                f"{argument('callbacks')} takes a list of Callback objects, such as "
                f"[TimeLimit(minutes=30)], not {wrong[0]!r}"
            )
        self.callbacks: list[Callback] = given

    @property
    def stop_training(self) -> bool:
        return any(callback.stop_training for callback in self.callbacks)

    def on_fit_start(self) -> None:
        for callback in self.callbacks:
            callback.on_fit_start()

    def on_trial_batch_end(self, done: int, total: int) -> None:
        for callback in self.callbacks:
            callback.on_trial_batch_end(done, total)

    def on_train_start(self, config: RunConfig) -> None:
        for callback in self.callbacks:
            callback.on_train_start(config)

    def on_epoch_start(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        for callback in self.callbacks:
            callback.on_epoch_start(epoch, epochs, targets, done)

    def on_batch_end(self, loss: float, targets: int) -> None:
        for callback in self.callbacks:
            callback.on_batch_end(loss, targets)

    def on_validation_batch_end(self, done: int, total: int) -> None:
        for callback in self.callbacks:
            callback.on_validation_batch_end(done, total)

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        for callback in self.callbacks:
            callback.on_epoch_end(row, best=best)

    def on_train_end(self) -> None:
        for callback in self.callbacks:
            callback.on_train_end()

    def on_test_batch_end(self, done: int, total: int) -> None:
        for callback in self.callbacks:
            callback.on_test_batch_end(done, total)

    def on_test_end(self, evaluation: Evaluation) -> None:
        for callback in self.callbacks:
            callback.on_test_end(evaluation)

    def on_message(self, message: str) -> None:
        for callback in self.callbacks:
            callback.on_message(message)

    def on_fit_end(self, *, finished: bool) -> None:
        for callback in self.callbacks:
            callback.on_fit_end(finished=finished)


class TimeLimit(Callback):
    """Ends a training after some minutes, as Ctrl-C would: it can be resumed.

    Examples:
        >>> from linrec.training.callbacks import TimeLimit
        >>> model = linrec.Recommender(recipe="small", epochs=1)
        >>> model.fit("data", callbacks=[TimeLimit(minutes=60)]).trained.interrupted
        False
    """

    def __init__(self, minutes: float) -> None:
        if not isinstance(minutes, int | float) or not minutes > 0:
            raise InputError(f"{argument('max_minutes', repr(minutes))} must be a positive number")
        self.minutes = minutes
        self.deadline = math.inf

    def on_fit_start(self) -> None:
        self.deadline, self.stop_training = time.monotonic() + 60 * self.minutes, False

    def on_batch_end(self, loss: float, targets: int) -> None:
        del loss, targets
        self._look()

    def on_validation_batch_end(self, done: int, total: int) -> None:
        del done, total
        self._look()

    def on_trial_batch_end(self, done: int, total: int) -> None:
        del done, total
        self._look()

    def _look(self) -> None:
        self.stop_training = time.monotonic() > self.deadline


class ConsoleProgress(Callback):
    """A bar with loss, speed and time left on a terminal, elsewhere a line per minute; one line
    per epoch anywhere."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[speed]}  {task.fields[status]}"),
            TimeRemainingColumn(), console=self.console, transient=True,
            disable=not self.console.is_terminal,
        )  # fmt: skip
        self.task: Any = None
        self.shown = time.monotonic()  # when the last line was printed

    def on_trial_batch_end(self, done: int, total: int) -> None:
        if self.task is None:
            self._start("trying a repeat head", total, done)
        self.bar.update(self.task, completed=done)
        self._line()

    def on_epoch_start(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        self._start(f"epoch {epoch}/{epochs}", targets, done)

    def on_batch_end(self, loss: float, targets: int) -> None:
        speed = self.bar.tasks[0].speed if self.bar.tasks else None
        self.bar.update(
            self.task, advance=targets, status=f"loss {loss:.3f}",
            speed=f"{speed:,.0f} targets/s" if speed else "",
        )  # fmt: skip
        self._line()

    def on_validation_batch_end(self, done: int, total: int) -> None:
        self.bar.update(self.task, status=f"validating {done:,}/{total:,} users")
        self._line()

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        self._close()
        self.console.print(
            f"epoch {row['epoch']:>3}  loss {row['loss']:.4f}  NDCG@10 {row['ndcg@10']:.4f}  "
            f"Recall@10 {row['recall@10']:.4f}  {row['seconds']:.0f} + {row['valid_seconds']:.0f} s"
            f"  lr {row['learning_rate']:.2g}" + ("  best" if best else ""),
            highlight=False,
            soft_wrap=True,
        )

    def on_train_end(self) -> None:
        self._close()

    def on_test_batch_end(self, done: int, total: int) -> None:
        if self.task is None:
            self._start("testing", total, done)
        self.bar.update(self.task, completed=done)
        self._line()

    def on_test_end(self, evaluation: Evaluation) -> None:
        del evaluation
        self._close()

    def on_message(self, message: str) -> None:
        self.console.print(message, highlight=False, soft_wrap=True, markup=False)

    def _line(self) -> None:
        """A line per minute where no bar is seen, so that a log shows that it goes on."""
        if self.console.is_terminal or time.monotonic() - self.shown < LINE_SECONDS:
            return
        task = self.bar.tasks[0]
        words = [task.description, f"{task.percentage:.0f} %", *task.fields.values()]
        self.on_message("  ".join(str(word) for word in words if word))
        self.shown = time.monotonic()

    def _start(self, description: str, total: int, done: int) -> None:
        self._close()
        self.shown = time.monotonic()
        self.task = self.bar.add_task(description, total=total, completed=done, status="", speed="")
        self.bar.start()

    def _close(self) -> None:
        self.bar.stop()
        if self.task is not None:
            self.bar.remove_task(self.task)
            self.task = None


class TensorBoardLogger(Callback):
    """The rows of history.csv as scalars for TensorBoard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer: Any = None

    @staticmethod
    def is_installed() -> bool:
        """tensorboard is an extra, and torch's module for it fails to import without it."""
        try:
            import_module("torch.utils.tensorboard")
        except ImportError:
            return False
        return True

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        del best
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(self.folder))
        for name, value in row.items():
            if name != "epoch":
                self.writer.add_scalar(name, value, int(row["epoch"]))
        self.writer.flush()

    def on_train_end(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None
