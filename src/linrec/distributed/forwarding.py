"""The hooks of a training, called where its terminal is."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from linrec.evaluation import Evaluation
from linrec.runs.config import RunConfig
from linrec.runs.history import Row
from linrec.training.callbacks import Callback, CallbackList

SECONDS_BETWEEN = 0.25  # two messages about batches; a terminal shows no more


class Message(NamedTuple):
    """A hook of `Callback` with its arguments."""

    attempt: int  # of the group; what an earlier one has sent counts no more
    name: str
    arguments: tuple[Any, ...]


class Forwarded(Callback):
    """In the first worker: sends the hooks to the driver, which may stop the training."""

    def __init__(self, ray: Any, mailbox: Any, attempt: int) -> None:
        self._ray, self._mailbox, self._attempt = ray, mailbox, attempt
        self._last: Any = None
        self._sent, self._loss, self._targets = 0.0, 0.0, 0

        def watch() -> None:
            ray.get(mailbox.stopped.remote())
            self.stop_training = True

        threading.Thread(target=watch, daemon=True, name="stop").start()

    def on_train_start(self, config: RunConfig) -> None:
        self._post("on_train_start", config)

    def on_epoch_start(self, epoch: int, epochs: int, targets: int, done: int) -> None:
        self._post("on_epoch_start", epoch, epochs, targets, done)

    def on_batch_end(self, loss: float, targets: int) -> None:
        """Several at once: their mean loss, and all their targets."""
        self._loss += loss * targets
        self._targets += targets
        if time.monotonic() - self._sent >= SECONDS_BETWEEN:
            self._post_batches()

    def on_validation_batch_end(self, done: int, total: int) -> None:
        self._now_and_then("on_validation_batch_end", done, total)

    def on_epoch_end(self, row: Row, *, best: bool) -> None:
        self._post("on_epoch_end", row, best)

    def on_train_end(self) -> None:
        self._post("on_train_end")

    def on_test_batch_end(self, done: int, total: int) -> None:
        self._now_and_then("on_test_batch_end", done, total)

    def on_test_end(self, evaluation: Evaluation) -> None:
        self._post("on_test_end", evaluation)

    def on_message(self, message: str) -> None:
        self._post("on_message", message)

    def _now_and_then(self, name: str, done: int, total: int) -> None:
        if done == total or time.monotonic() - self._sent >= SECONDS_BETWEEN:
            self._post(name, done, total)

    def _post_batches(self) -> None:
        if self._targets:
            mean, targets = self._loss / self._targets, self._targets
            self._loss, self._targets = 0.0, 0
            self._send("on_batch_end", mean, targets)

    def _post(self, name: str, *arguments: Any) -> None:
        self._post_batches()
        self._send(name, *arguments)

    def _send(self, name: str, *arguments: Any) -> None:
        self._sent = time.monotonic()
        stored = self._ray.put(Message(self._attempt, name, arguments))
        self._last = self._mailbox.post.remote([stored])  # in a list, it is not opened on its way

    def flush(self) -> None:
        """Wait until all has arrived; messages keep their order."""
        if self._last is not None:
            self._ray.get(self._last)


class Heard:
    """In the driver: calls the hooks of its callbacks."""

    def __init__(self, callbacks: CallbackList) -> None:
        self.callbacks = callbacks
        self.begun = self.in_steps = self.has_run = False

    def __call__(self, message: Message, attempt: int) -> None:
        if message.attempt != attempt:
            return
        name, arguments = message.name, message.arguments
        self.in_steps = name != "on_train_end" and (self.in_steps or name == "on_epoch_start")
        if name == "on_epoch_end":
            self.has_run = True
            row, best = arguments
            self.callbacks.on_epoch_end(row, best=best)
        elif name != "on_train_start" or not self.begun:  # once, also if it is started again
            self.begun |= name == "on_train_start"
            getattr(self.callbacks, name)(*arguments)
