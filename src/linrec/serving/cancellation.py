"""Work that nobody waits for any more is not started."""

from __future__ import annotations

from contextvars import ContextVar
from threading import Event

_CANCELLED: ContextVar[Event | None] = ContextVar("cancelled", default=None)


class CancelledError(RuntimeError):
    """The caller has gone, or its time is over."""


def new_scope() -> Event:
    """A scope for the current context and the threads it starts; setting the event cancels it."""
    scope = Event()
    _CANCELLED.set(scope)
    return scope


def current_scope() -> Event | None:
    return _CANCELLED.get()


def check_cancelled() -> None:
    """Raise CancelledError if nobody waits for what this context does."""
    scope = current_scope()
    if scope is not None and scope.is_set():
        raise CancelledError("nobody waits for this request any more")
