"""Appends of users whose writers do not wait for each other: one batcher per file of the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Event
from typing import Any

from linrec.serving.appending import Append, Appended
from linrec.serving.batcher import Batcher, BusyError, ClosedError, resolver
from linrec.serving.cancellation import check_cancelled, current_scope
from linrec.serving.stores.sharded import shard_of


class Lanes:
    """Used as a `Batcher` is: requests of one user keep their order."""

    def __init__(self, batcher: Callable[[str], Batcher[Append, Appended]], shards: int) -> None:
        """batcher: makes one, by its name."""
        names = ["append"] if shards == 1 else [f"append-{number}" for number in range(shards)]
        self._lanes = [batcher(name) for name in names]

    def submit(self, requests: Sequence[Append]) -> list[Appended]:
        lanes = self._of(requests)
        if len(lanes) == 1:
            return self._lanes[next(iter(lanes))].submit(requests)
        check_cancelled()
        futures: list[Future[Appended]] = [Future() for _ in requests]
        self.enqueue(requests, [resolver(future) for future in futures], current_scope())
        return [future.result() for future in futures]

    def enqueue(
        self,
        requests: Sequence[Append],
        deliver: Sequence[Callable[[Any], None]],
        scope: Event | None = None,
    ) -> None:
        """Raises if nothing was taken; else each request that was not gets the error."""
        taken = False
        for lane, rows in self._of(requests).items():
            mine = [deliver[row] for row in rows]
            try:
                self._lanes[lane].enqueue([requests[row] for row in rows], mine, scope)
                taken = True
            except (BusyError, ClosedError) as error:
                if not taken:
                    raise
                for each in mine:
                    each(error)

    def _of(self, requests: Sequence[Append]) -> dict[int, list[int]]:
        """The rows of each lane."""
        if len(self._lanes) == 1:
            return {0: list(range(len(requests)))}
        rows: dict[int, list[int]] = {}
        for row, request in enumerate(requests):
            rows.setdefault(shard_of(request.user, len(self._lanes)), []).append(row)
        return rows

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()
