"""Ctrl-C, delayed to moments when no step or file is half done."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class DelayedInterrupt:
    """Inside this context Ctrl-C waits for the next `check`; a second Ctrl-C does not wait.

    An exception between an optimizer's step and its counter would leave an inconsistent
    checkpoint, and a resumed run would differ from the uninterrupted one.
    """

    def __init__(self) -> None:
        self.pressed = self.pressed_twice = False
        self._previous: Any = None

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self.pressed:
            raise KeyboardInterrupt

    def __enter__(self) -> DelayedInterrupt:
        self.pressed = self.pressed_twice = False
        # only the main thread may set handlers; a handler that ignores Ctrl-C stays
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            self.pressed_twice = True  # the last checkpoint on disk is still consistent
            signal.default_int_handler(number, frame)
        self.pressed = True
