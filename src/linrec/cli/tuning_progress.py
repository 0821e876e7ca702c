"""Trials on a terminal: a bar for each that runs; everywhere one line per trial."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from linrec.tuning.driver import TuningCallback
from linrec.tuning.study import Study
from linrec.tuning.trial import Outcome


class TuningProgress(TuningCallback):
    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(),
            TextColumn("{task.completed}/{task.total} epochs  {task.fields[status]}"),
            TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self.tasks: dict[int, Any] = {}
        self.values: dict[int, dict[str, Any]] = {}

    def __enter__(self) -> TuningProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.stop()

    def on_message(self, message: str) -> None:
        self.console.print(message, highlight=False, soft_wrap=True, markup=False)

    def on_trial_start(self, place: int, values: dict[str, Any]) -> None:
        self.values[place] = values
        self.tasks[place] = self.bar.add_task(f"trial {place}", total=None, status="")
        self.bar.start()

    def on_epoch_end(self, place: int, epoch: int, epochs: int, value: float) -> None:
        status = f"NDCG@10 {value:.4f}"
        self.bar.update(self.tasks[place], completed=epoch, total=epochs, status=status)

    def on_trial_end(self, place: int, outcome: Outcome, study: Study) -> None:
        self.bar.remove_task(self.tasks.pop(place))
        if not self.tasks:  # the winner's training has a bar of its own
            self.bar.stop()
        best = study.best
        mark = "  best" if best is not None and best.user_attrs["place"] == place else ""
        figure = f"NDCG@10 {outcome.value:.4f}" if outcome.value is not None else outcome.end
        words = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in self.values.pop(place).items()
        )
        seconds = f"{outcome.epochs:>3} epochs  {outcome.seconds:>5.0f} s"
        self.on_message(f"trial {place:>3}  {figure:<14}  {seconds}  {words}{mark}")
