"""Bars, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

Told = Callable[[int, "int | None"], None]


@contextmanager
def counting(what: str, console: Console, *columns: ProgressColumn) -> Iterator[Told]:
    """Yield a function to be told how many of how many are done."""
    hidden = console.quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def arriving(what: str, console: Console) -> AbstractContextManager[Told]:
    """The same over bytes, with their speed."""
    name = TextColumn("{task.description}", markup=False)
    speed = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return counting(what, console, name, BarColumn(), *speed)
