"""Requests that arrive at the same time, processed together; a full queue refuses more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore, Event, Lock, Thread
from time import monotonic
from typing import Generic, TypeVar

from linrec.serving.cancellation import CancelledError, check_cancelled, current_scope

Request = TypeVar("Request")
Response = TypeVar("Response")


class ClosedError(RuntimeError):
    """A request after the end."""


class BusyError(RuntimeError):
    """Too many requests are waiting."""

    def __init__(self) -> None:
        super().__init__("too many requests are waiting; try again later")


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[Request, Response]):
    request: Request
    scope: Event | None  # set once nobody waits for the response
    future: Future[Response] = field(default_factory=Future)

    @property
    def cancelled(self) -> bool:
        return self.scope is not None and self.scope.is_set()


class Batcher(Generic[Request, Response]):
    """One thread that takes what has gathered while it was busy, up to `size` requests.

    An idle batcher responds at once. `wait` makes it linger for company, which costs a lone caller
    that long and pays only where a batch costs little more than a single request.
    """

    def __init__(
        self,
        work: Callable[[list[Request]], Sequence[Response | Exception]],
        *,
        size: int,
        wait: float = 0.0,
        max_waiting: int = 1024,
        name: str = "batcher",
    ) -> None:
        self._work, self._size, self._wait, self._max_waiting = work, size, wait, max_waiting
        self._queue: SimpleQueue[_Waiting[Request, Response] | None] = SimpleQueue()
        self._lock, self._closed = Lock(), False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, requests: Sequence[Request]) -> list[Response]:
        """All responses, in order; raises what the first failing one raised."""
        check_cancelled()
        scope = current_scope()
        waiting: list[_Waiting[Request, Response]] = [_Waiting(each, scope) for each in requests]
        with self._lock:  # nothing may be queued behind the end
            if self._closed:
                raise ClosedError("the engine is closed")
            queued = self._queue.qsize()
            if queued and queued + len(waiting) > self._max_waiting:
                raise BusyError
            for each in waiting:
                self._queue.put(each)
        return [each.future.result() for each in waiting]

    def close(self) -> None:
        """Process what was taken, then end."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, more = self._gather(first)
            self._process(batch)
            if not more:
                return

    def _gather(
        self, first: _Waiting[Request, Response]
    ) -> tuple[list[_Waiting[Request, Response]], bool]:
        batch, until = [first], monotonic() + self._wait
        while len(batch) < self._size:
            try:
                left = until - monotonic()
                after = self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()
            except Empty:
                break
            if after is None:
                return batch, False
            batch.append(after)
        return batch, True

    def _process(self, batch: list[_Waiting[Request, Response]]) -> None:
        for each in batch:
            if each.cancelled:
                each.future.set_exception(CancelledError("nobody waits for this request any more"))
        batch = [each for each in batch if not each.future.done()]
        if not batch:
            return
        responses: Sequence[Response | Exception]
        try:
            responses = self._work([each.request for each in batch])
            assert len(responses) == len(batch)
        except Exception as error:  # every caller gets it; the thread lives on
            responses = [error] * len(batch)
        for each, response in zip(batch, responses, strict=True):
            if isinstance(response, Exception):
                each.future.set_exception(response)
            else:
                each.future.set_result(response)


class LongWork:
    """At most `at_once` pieces of long work at the same time, and at most `max_waiting` more."""

    def __init__(self, at_once: int, max_waiting: int) -> None:
        self._running = BoundedSemaphore(at_once)
        self._admitted = BoundedSemaphore(at_once + max_waiting)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Raises BusyError if too many wait, CancelledError if the caller left meanwhile."""
        if not self._admitted.acquire(blocking=False):
            raise BusyError
        try:
            with self._running:
                check_cancelled()
                yield
        finally:
            self._admitted.release()
