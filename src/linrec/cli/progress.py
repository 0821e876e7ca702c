"""Progress bars on a terminal."""

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

ProgressCallback = Callable[[int, "int | None"], None]


@contextmanager
def counting(
    description: str, console: Console, *columns: ProgressColumn
) -> Iterator[ProgressCallback]:
    """Yield a function to call with the number done and the total."""
    hidden = console.quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(description)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def arriving(description: str, console: Console) -> AbstractContextManager[ProgressCallback]:
    """The same for bytes of a download, with their speed."""
    name = TextColumn("{task.description}", markup=False)
    speed = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return counting(description, console, name, BarColumn(), *speed)
