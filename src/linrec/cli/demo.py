"""`linrec demo`."""

from __future__ import annotations


def demo() -> None:
    """Placeholder.

    Examples:

    \b
      linrec demo
    """
