"""What a client without a token can cost: bytes, connections, seconds and work are bounded."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path

import httpx
import pytest

from linrec.serving import Engine, NewEvent, open_store
from linrec.serving.batcher import Batcher, BusyError, LongWork
from linrec.serving.cancellation import CancelledError, new_scope
from tests.serving.redis_server import free_port
from tests.serving.serving_process import client, within

MakeEngine = Callable[..., Engine]
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
SECONDS = 30


@contextlib.contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as opened:
        yield opened


def response(opened: socket.socket) -> tuple[int, dict[str, str], str]:
    """Status, headers and error of what the server sends before it closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := opened.recv(65536):
            received += part
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, json.loads(body)["error"]


# ------------------------------------------------------------------------------------ connections


def test_endless_headers_are_cut_off(run: Path) -> None:
    sent = 0
    with within(Engine(run, open_store("memory"))) as address, connected(address) as opened:
        opened.sendall(HEAD + b"X-Large: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                sent += opened.send(b"x" * 65_536)
        # whatever the kernel has buffered, but not all of it
        assert sent < 1000 * 65_536 / 2
        with client(address) as http:
            assert http.get("/healthz", headers={"X-Long": "x" * 30_000}).status_code == 200
            refused = http.get("/healthz", headers={"X-Long": "x" * 33_000})
            assert refused.status_code == 431
            assert refused.json() == {"error": "headers may have 32,768 bytes at most"}


def test_the_number_of_headers_is_bounded(run: Path) -> None:
    with within(Engine(run, open_store("memory"))) as address, client(address) as http:
        for count, status in ((80, 200), (101, 431)):
            headers = {f"X-{number}": "x" for number in range(count)}
            assert http.get("/healthz", headers=headers).status_code == status


@pytest.mark.parametrize(
    "first", [b"", b"GET ", b"\r\n", HEAD], ids=["nothing", "word", "line", "head"]
)
def test_silence_is_not_waited_for(run: Path, first: bytes) -> None:
    engine = Engine(run, open_store("memory"))
    with within(engine, head_timeout=0.3) as address, connected(address) as opened:
        opened.sendall(first)
        status, _, error = response(opened)
        assert (status, error) == (408, "the request did not arrive in time; send it again")


def test_a_head_in_drops_is_not_waited_for(run: Path) -> None:
    engine = Engine(run, open_store("memory"))
    with within(engine, head_timeout=0.5) as address, connected(address) as opened:
        begin = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for byte in HEAD * 100:
                opened.sendall(bytes([byte]))
                time.sleep(0.02)
        assert time.monotonic() - begin < SECONDS


def test_an_idle_connection_is_closed(run: Path) -> None:
    engine = Engine(run, open_store("memory"))
    with within(engine, idle_timeout=1) as address, connected(address) as opened:
        opened.sendall(HEAD + b"\r\n")
        assert b"200 OK" in opened.recv(65536)
        assert opened.recv(65536) == b""


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_address"])
def test_too_many_connections(run: Path, limit: str) -> None:
    engine = Engine(run, open_store("memory"))
    with within(engine, **{limit: 3}) as address, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(address)) for _ in range(3)]
        time.sleep(0.2)
        with connected(address) as refused:
            status, headers, error = response(refused)
        assert (status, headers["retry-after"]) == (503, "1")
        assert error == "too many connections are open; try again later"
        silent.pop().close()
        time.sleep(0.2)
        with client(address) as http:
            assert http.get("/healthz").status_code == 200


def test_silent_connections_shut_nobody_out_for_long(run: Path) -> None:
    engine = Engine(run, open_store("memory"))
    options = {"max_connections": 20, "head_timeout": 0.5}
    with within(engine, **options) as address, contextlib.ExitStack() as stack:
        for _ in range(25):
            stack.enter_context(connected(address))
        until = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(httpx.TransportError), client(address) as http:
                if http.get("/healthz").status_code == 200:
                    break
            assert time.monotonic() < until
            time.sleep(0.1)


def test_a_response_that_is_not_read(run: Path) -> None:
    """The connection is given up, and so is the memory of its response."""
    engine = Engine(run, open_store("memory"))
    one = {"history": ["i01"], "k": 15, "keep_seen": True}
    body = json.dumps({"batch": [one] * 256}).encode()
    head = b"POST /v1/recommendations HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with within(engine, idle_timeout=1) as address, connected(address) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        opened.sendall((head + body) * 30)  # responses beyond all buffers
        with pytest.raises(ConnectionError):
            send_for(opened, SECONDS)
        with client(address) as http:
            assert http.get("/healthz").status_code == 200


def send_for(opened: socket.socket, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        opened.sendall(b"\r\n")
        time.sleep(0.05)


def test_what_is_not_http_is_answered_in_json(run: Path) -> None:
    with within(Engine(run, open_store("memory"))) as address, connected(address) as opened:
        opened.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert response(opened)[::2] == (400, "this is not an HTTP request")


# ------------------------------------------------------------------------------------------ queues


class Gate:
    """Work that waits until it may go on; `begun` holds what was started."""

    def __init__(self) -> None:
        self.open, self.begun = threading.Event(), []  # type: ignore[var-annotated]
        self.entered = threading.Event()

    def work(self, requests: list[str]) -> list[str]:
        self.begun += requests
        self.entered.set()
        assert self.open.wait(SECONDS)
        return requests


def in_thread(target: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    outcome: list[object] = []

    def call() -> None:
        try:
            outcome.append(target())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, outcome


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_full_queue_refuses_and_what_was_cancelled_is_not_started() -> None:
    gate = Gate()
    batcher: Batcher[str, str] = Batcher(gate.work, size=1, max_waiting=2)
    threads = [in_thread(lambda: batcher.submit(["first"]))]
    assert gate.entered.wait(SECONDS)
    scopes = []

    def abandoned() -> list[str]:
        scopes.append(new_scope())
        return batcher.submit(["abandoned"])

    threads.append(in_thread(abandoned))
    threads.append(in_thread(lambda: batcher.submit(["second"])))
    wait_until(lambda: batcher._queue.qsize() == 2)
    with pytest.raises(BusyError, match="too many requests are waiting"):
        batcher.submit(["third"])
    scopes[0].set()
    gate.open.set()
    for thread, _ in threads:
        thread.join()
    assert gate.begun == ["first", "second"]
    assert isinstance(threads[1][1][0], CancelledError)
    batcher.close()


def test_long_work_is_bounded() -> None:
    long, begun, go = LongWork(1, 1), threading.Event(), threading.Event()

    def work() -> str:
        with long.turn():
            begun.set()
            assert go.wait(SECONDS)
            return "done"

    first = in_thread(work)
    assert begun.wait(SECONDS)
    second = in_thread(work)
    wait_until(lambda: long._admitted._value == 0)  # type: ignore[attr-defined]
    with pytest.raises(BusyError), long.turn():
        pass
    go.set()
    first[0].join()
    second[0].join()
    assert first[1] == second[1] == ["done"]

    def abandoned() -> None:
        new_scope().set()
        with long.turn():
            pass

    with pytest.raises(CancelledError):
        copy_context().run(abandoned)


class SlowStore:
    """A store whose writes wait until they may go on."""

    def __init__(self) -> None:
        self._store = open_store("memory")
        self.open, self.writing = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def commit(self, changes: list[object]) -> list[bool]:
        self.writing.set()
        assert self.open.wait(SECONDS)
        return self._store.commit(changes)  # type: ignore[arg-type]


def events(user: str) -> dict[str, object]:
    return {"user": user, "events": [{"item": "i01"}]}


@pytest.mark.parametrize("client_goes", [True, False], ids=["gone", "timed out"])
def test_work_that_nobody_waits_for_is_not_started(run: Path, client_goes: bool) -> None:
    store = SlowStore()
    engine = Engine(run, store)  # type: ignore[arg-type]
    with within(engine, timeout=60 if client_goes else 1) as address, client(address) as http:
        first = in_thread(lambda: http.post("/v1/events", json=events("first")))
        assert store.writing.wait(SECONDS)
        if client_goes:
            with pytest.raises(httpx.ReadTimeout), httpx.Client(timeout=0.5) as impatient:
                impatient.post(f"{address}/v1/events", json=events("second"))
        else:
            refused = http.post("/v1/events", json=events("second"))
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        time.sleep(0.3)
        store.open.set()
        first[0].join()
        engine._appends.submit([])
        assert engine.append("third", [NewEvent("i01")]).appended == 1
        assert engine.store.users("", 10) == ["first", "third"]


def test_a_full_server_says_when_to_try_again(run: Path) -> None:
    store = SlowStore()
    engine = Engine(run, store)  # type: ignore[arg-type]
    with within(engine, max_requests=1) as address, client(address) as http:
        first = in_thread(lambda: http.post("/v1/events", json=events("first")))
        assert store.writing.wait(SECONDS)
        refused = http.get("/v1/users")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"].startswith("too many requests")
        store.open.set()
        first[0].join()
        assert http.get("/v1/users").json() == {"users": ["first"]}


def test_a_full_queue_over_http(run: Path, make_engine: MakeEngine) -> None:
    store = SlowStore()
    engine = make_engine(run, store, max_waiting=1, batch_size=1)
    with within(engine) as address, client(address) as http:
        first = in_thread(lambda: http.post("/v1/events", json=events("a")))
        assert store.writing.wait(SECONDS)
        second = in_thread(lambda: http.post("/v1/events", json=events("b")))
        wait_until(lambda: engine._appends._lanes[0]._queue.qsize() == 1)
        refused = http.post("/v1/events", json=events("c"))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        store.open.set()
        first[0].join()
        second[0].join()


# ---------------------------------------------------------------------------------------- the end

STUCK = """
import sys, time
from linrec.serving import Engine, open_store
from linrec.serving.http.options import HttpOptions
from linrec.serving.http.server import bound, serve
engine = Engine(sys.argv[1], open_store("memory"))
engine.append_many = lambda *_: time.sleep(600)
serve(engine, HttpOptions(grace=2, timeout=600), bound("127.0.0.1", int(sys.argv[2])))
"""


@pytest.mark.slow
def test_sigterm_ends_within_the_stated_time(run: Path) -> None:
    """Whatever is still being processed."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", STUCK, str(run), str(port)], env=os.environ)
    try:
        url = f"http://127.0.0.1:{port}"
        with client(url) as http:
            wait_for_server(http)
            in_thread(lambda: http.post("/v1/events", json=events("u")))
            time.sleep(0.5)
            begin = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.wait(20)
            assert time.monotonic() - begin < 6
    finally:
        process.kill()
        process.wait()


def wait_for_server(http: httpx.Client) -> None:
    until = time.monotonic() + 180
    while True:
        with contextlib.suppress(httpx.TransportError):
            if http.get("/healthz").status_code == 200:
                return
        assert time.monotonic() < until
        time.sleep(0.1)
