"""Ctrl-C, heard only where nothing is half done."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class CtrlC:
    """While it is entered, Ctrl-C waits for `heed`; a second one does not wait.

    An exception between an optimizer's step and the count of it would leave a checkpoint that
    disagrees with itself, and a resumed run would not be the uninterrupted one.
    """

    def __init__(self) -> None:
        self.heard = self.hurried = False
        self._before: Any = None

    def heed(self) -> None:
        """Stop here if somebody asked for it."""
        if self.heard:
            raise KeyboardInterrupt

    def __enter__(self) -> CtrlC:
        self.heard = self.hurried = False
        # only the main thread may listen, and only if nobody has chosen to ignore Ctrl-C
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.heard:
            self.hurried = True  # whatever is half done stays so; the last checkpoint is whole
            signal.default_int_handler(number, frame)
        self.heard = True
