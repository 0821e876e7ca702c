"""Several workers: each user's events go to one of them, over sockets between the workers.

Any worker may store the events of any user; the version check of the store sees to that. But a
worker that finds a user moved on by another one has to read and check the state again and catch up
with what it missed, and writers of one file wait for each other. So a request for one user is
handed to the worker that is home to the user, which has the state in its cache and commits it
together with what else has gathered there. Where that worker does not listen, or does not take the
request, the events are stored where they arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any

from pydantic_core import from_json, to_json

from linrec.serving.appending import Append, NewEvent
from linrec.serving.batcher import BusyError, ClosedError
from linrec.serving.engine import Engine
from linrec.serving.http.hot_requests import Arrivals, HotEvents, Waiting
from linrec.serving.http.observing import LOG, Metrics
from linrec.serving.http.options import Sharing
from linrec.serving.stores.sharded import shard_of

HEAD = Struct("<IHI")  # number of the request, status (0 in a request), bytes that follow
NOT_TAKEN = 0  # nothing of the request was kept
LEAVING = 1  # the worker ends: what it was asked so far is answered, more is not wanted
RETRY_SECONDS = 0.2  # until a worker that did not listen is asked again
LEAVE_SECONDS = 2.0  # for other workers to have their last answers
WORKER_ENDED = "the process that stores this user's events ended; events with ids can be resent"

Receiver = Callable[["Link", int, int, bytes], None]


class Link(asyncio.Protocol):
    """One end of a connection; what is sent in one turn of the loop is written together."""

    def __init__(self, receive: Receiver, lost: Callable[[Link], None]) -> None:
        self._receive, self._lost = receive, lost
        self._read, self._unsent = bytearray(), bytearray()
        self.asked: dict[int, Waiting] = {}  # by number of the request
        self.leaving = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport  # uvloop's is no asyncio.Transport, but has its methods

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self._lost(self)

    def data_received(self, data: bytes) -> None:
        self._read += data
        at = 0
        while at + HEAD.size <= len(self._read):
            number, status, size = HEAD.unpack_from(self._read, at)
            if at + HEAD.size + size > len(self._read):
                break
            at += HEAD.size + size
            self._receive(self, number, status, bytes(self._read[at - size : at]))
        del self._read[:at]

    def send(self, number: int, status: int, content: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._write)
        self._unsent += HEAD.pack(number, status, len(content)) + content

    def _write(self) -> None:
        content, self._unsent = bytes(self._unsent), bytearray()
        if self._transport is not None:
            self._transport.write(content)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Homes:
    """Of one worker: what it takes for others, and the others it hands on to."""

    def __init__(self, engine: Engine, metrics: Metrics, sharing: Sharing) -> None:
        self._engine, self._sharing = engine, sharing
        self._route = HotEvents(engine, metrics)
        self._links: dict[int, Link] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._handed_on = metrics.handed_on
        self._number, self._open = 0, False

    def _place(self, worker: int) -> Path:
        return Path(self._sharing.folder) / f"worker-{worker}.sock"

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Take what other workers hand on, and hand on what is theirs."""
        loop = asyncio.get_running_loop()
        self._arrivals = Arrivals(loop)
        taken: set[Link] = set()

        def link() -> Link:
            made = Link(self._take, taken.discard)
            taken.add(made)
            return made

        place = self._place(self._sharing.number)
        place.unlink(missing_ok=True)  # of this worker, before it was restarted
        try:
            server = await loop.create_unix_server(link, str(place))
        except OSError as error:  # slower, and as right: every worker stores what it gets
            LOG.warning("workers do not hand on events", extra={"fields": {"reason": str(error)}})
            yield
            return
        self._open = True
        try:
            yield
        finally:
            self._open = False
            server.close()
            await self._leave(taken)

    async def _leave(self, taken: set[Link]) -> None:
        """Answer what others have handed on, and have what was handed on answered."""
        for link in taken:
            link.send(0, LEAVING, b"")
        until = asyncio.get_running_loop().time() + LEAVE_SECONDS
        while taken and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
        for task in self._connecting.values():
            task.cancel()
        for link in (*taken, *self._links.values()):
            link.close()

    def home(self, user: str) -> int:
        """Of a store of enough files, all users of one have the same home."""
        files, workers = self._engine.store.shards, self._sharing.workers
        return shard_of(user, files if files >= workers else workers) % workers

    def hand_on(self, request: Append, loop: asyncio.AbstractEventLoop) -> Waiting | None:
        """For a (status, body), which comes later; None if the events are to be stored here."""
        worker = self.home(request.user)
        if worker == self._sharing.number or not self._open:
            return None
        link = self._links.get(worker)
        if link is None:
            if worker not in self._connecting:
                self._connecting[worker] = loop.create_task(self._connect(worker))
            return None
        self._number = (self._number + 1) % 2**32
        waiting = Waiting(1, loop)
        link.asked[self._number] = waiting
        link.send(self._number, 0, packed(request))
        self._handed_on.inc()
        return waiting

    async def _connect(self, worker: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, link = await loop.create_unix_connection(
                lambda: Link(self._answered, self._disconnected), str(self._place(worker))
            )
            self._links[worker] = link
        except OSError:
            await asyncio.sleep(RETRY_SECONDS)
        finally:
            del self._connecting[worker]

    def _forget(self, link: Link) -> None:
        self._links = {worker: each for worker, each in self._links.items() if each is not link}

    def _disconnected(self, link: Link) -> None:
        """Whether the worker had stored what it was asked to is not known."""
        self._forget(link)
        for waiting in link.asked.values():
            waiting.take(0, (503, to_json({"error": WORKER_ENDED})))

    def _answered(self, link: Link, number: int, status: int, content: bytes) -> None:
        if status == LEAVING:
            self._forget(link)
            link.leaving = True
        else:
            link.asked.pop(number).take(0, (status, content))
        if link.leaving and not link.asked:
            link.close()

    def _take(self, link: Link, number: int, status: int, body: bytes) -> None:
        """Store events that another worker handed on."""
        del status
        response = _Response(self._route, link, number)
        try:
            self._route.enqueue(
                [unpacked(body)], [partial(self._arrivals.deliver, response, 0)], None
            )
        except (BusyError, ClosedError):
            link.send(number, NOT_TAKEN, b"")


class _Response:
    """To a request of another worker, sent as soon as the result is there."""

    __slots__ = ("_link", "_number", "_route")

    def __init__(self, route: HotEvents, link: Link, number: int) -> None:
        self._route, self._link, self._number = route, link, number

    def take(self, place: int, result: Any) -> None:
        del place
        response = self._route.response(None, [result])
        assert response is not None  # events have no slow way
        self._link.send(self._number, *response)


def packed(request: Append) -> bytes:
    """A request that was checked, without the names of fields: it need not be checked again."""
    events = [(each.item, each.time, each.id, each.context) for each in request.events]
    return to_json((request.user, events))


def unpacked(content: bytes) -> Append:
    user, events = from_json(content)
    return Append(user, [NewEvent(*each) for each in events])
