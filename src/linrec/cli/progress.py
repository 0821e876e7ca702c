"""A bar over users, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def counting(what: str, console: Console) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to be told how many of how many are done."""
    hidden = console.quiet or not console.is_terminal
    with Progress(console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)
