"""Requests that arrive at the same time, processed together; a full queue refuses more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
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
    deliver: Callable[[Response | Exception], None]  # called once

    @property
    def cancelled(self) -> bool:
        return self.scope is not None and self.scope.is_set()


class Batcher(Generic[Request, Response]):
    """One thread that takes what has gathered while it was busy, up to `size` requests.

    An idle batcher responds at once, in the caller's own thread. `wait` makes it linger for
    company, which costs a lone caller that long and pays only where a batch costs little more than
    a single request.
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
        self._wake: SimpleQueue[None] = SimpleQueue()  # one entry per entry of the queue
        self._lock, self._closed = Lock(), False
        self._working = Lock()  # held by whoever processes a batch
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, requests: Sequence[Request]) -> list[Response]:
        """All responses, in order; raises what the first failing one raised."""
        check_cancelled()
        if not self._wait and self._queue.empty() and self._working.acquire(blocking=False):
            try:
                self._check_open()
                return [response for some in self._pieces(requests) for response in _raised(some)]
            finally:
                self._working.release()
        futures: list[Future[Response]] = [Future() for _ in requests]
        self.enqueue(requests, [resolver(future) for future in futures], current_scope())
        return [future.result() for future in futures]

    def enqueue(
        self,
        requests: Sequence[Request],
        deliver: Sequence[Callable[[Response | Exception], None]],
        scope: Event | None = None,
    ) -> None:
        """Without waiting: each response is delivered, by another thread, when it is there."""
        with self._lock:  # nothing may be queued behind the end
            self._check_open()
            queued = self._queue.qsize()
            if queued and queued + len(requests) > self._max_waiting:
                raise BusyError
            for request, each in zip(requests, deliver, strict=True):
                self._put(_Waiting(request, scope, each))

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the engine is closed")

    def _pieces(self, requests: Sequence[Request]) -> Iterator[Sequence[Response | Exception]]:
        for first in range(0, len(requests), self._size):
            yield self._responses(list(requests[first : first + self._size]))

    def close(self) -> None:
        """Process what was taken, then end."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._put(None)
        self._thread.join()
        with self._working:  # whoever responds to itself ends first
            pass

    def _put(self, waiting: _Waiting[Request, Response] | None) -> None:
        self._queue.put(waiting)
        self._wake.put(None)

    def _run(self) -> None:
        more = True
        while more:
            self._wake.get()
            # what waits stays in the queue until then, and is counted; an earlier batch may take it
            with self._working, contextlib.suppress(Empty):
                first = self._queue.get_nowait()
                if first is None:
                    return
                batch, more = self._gather(first)
                self._process(batch)

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
        wanted = []
        for each in batch:
            if each.cancelled:
                each.deliver(CancelledError("nobody waits for this request any more"))
            else:
                wanted.append(each)
        if not wanted:
            return
        responses = self._responses([each.request for each in wanted])
        for each, response in zip(wanted, responses, strict=True):
            each.deliver(response)

    def _responses(self, requests: list[Request]) -> Sequence[Response | Exception]:
        try:
            responses = self._work(requests)
            assert len(responses) == len(requests)
        except Exception as error:  # every caller gets it; the thread lives on
            return [error] * len(requests)
        return responses


def resolver(future: Future[Response]) -> Callable[[Response | Exception], None]:
    def resolve(response: Response | Exception) -> None:
        if isinstance(response, Exception):
            future.set_exception(response)
        else:
            future.set_result(response)

    return resolve


def _raised(responses: Sequence[Response | Exception]) -> Iterator[Response]:
    for response in responses:
        if isinstance(response, Exception):
            raise response
        yield response


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
