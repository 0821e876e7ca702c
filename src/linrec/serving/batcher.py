"""Requests that come at the same time, answered together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class ClosedError(RuntimeError):
    """Asked after the end."""


class Batcher(Generic[Question, Answer]):
    """One thread that takes what has gathered while it was busy, up to `size` questions.

    An idle batcher answers at once. `wait` makes it linger for company, which costs a lone caller
    that long and pays only where a batch costs little more than a single question.
    """

    def __init__(
        self,
        work: Callable[[list[Question]], Sequence[Answer | Exception]],
        *,
        size: int,
        wait: float = 0.0,
        name: str = "batcher",
    ) -> None:
        self._work, self._size, self._wait = work, size, wait
        self._queue: SimpleQueue[tuple[Question, Future[Answer]] | None] = SimpleQueue()
        self._lock, self._closed = Lock(), False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """All answers, in order; raises what the first failing one raised."""
        futures: list[Future[Answer]] = [Future() for _ in questions]
        with self._lock:  # nothing may be queued behind the end
            if self._closed:
                raise ClosedError("the engine is closed")
            for pair in zip(questions, futures, strict=True):
                self._queue.put(pair)
        return [future.result() for future in futures]

    def close(self) -> None:
        """Answer what was taken, then end."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, more = self._gather(first)
            self._answer(batch)
            if not more:
                return

    def _gather(
        self, first: tuple[Question, Future[Answer]]
    ) -> tuple[list[tuple[Question, Future[Answer]]], bool]:
        batch, until = [first], monotonic() + self._wait
        while len(batch) < self._size:
            try:
                left = until - monotonic()
                found = self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()
            except Empty:
                break
            if found is None:
                return batch, False
            batch.append(found)
        return batch, True

    def _answer(self, batch: list[tuple[Question, Future[Answer]]]) -> None:
        answers: Sequence[Answer | Exception]
        try:
            answers = self._work([question for question, _ in batch])
        except Exception as error:  # whoever asked is told; the thread lives on
            answers = [error] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
