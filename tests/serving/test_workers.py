"""Several workers behind one address: `linrec serve --workers`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from linrec.serving import open_store
from linrec.serving.http.supervisor import MAX_PAUSE, pause_after
from linrec.serving.http.worker import take_cores
from tests.serving.cases import make_run
from tests.serving.redis_server import RedisServer
from tests.serving.serving_process import SECONDS, ServeProcess, client

TOKEN = "0123456789abcdef"
HEAD = {"Authorization": f"Bearer {TOKEN}"}


class Workers:
    def __init__(self, run: Path, place: str) -> None:
        self.server = ServeProcess(run, place, "--workers", "2", "--grace", "5", token=TOKEN)
        self.run, self.place = run, place
        self.url = self.server.start()
        self.wait_for(lambda: len(self.pids()) == 2)

    def lines(self) -> list[dict[str, object]]:
        found = []
        for line in self.server.log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [line for line in found if isinstance(line, dict)]

    def pids(self) -> dict[int, int]:
        """The newest process of each worker that is alive."""
        started = [line for line in self.lines() if line["message"] == "worker started"]
        newest = {int(str(line["worker"])): int(str(line["pid"])) for line in started}
        return {number: pid for number, pid in newest.items() if alive(pid)}

    def answered(self) -> set[object]:
        """The workers that have answered a request."""
        return {line["worker"] for line in self.lines() if line["message"] == "request"}

    def send(self, user: str, name: str) -> int:
        body = {"user": user, "events": [{"item": "i01", "id": name}]}
        with client(self.url, headers=HEAD) as http:
            return http.post("/v1/events", json=body).status_code

    def metric(self, name: str) -> float:
        with client(self.url, headers=HEAD) as http:
            lines = http.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    @staticmethod
    def wait_for(condition: Callable[[], bool]) -> None:
        until = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < until, "it did not happen"
            time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module", params=["sqlite", pytest.param("redis", marks=pytest.mark.service)])
def workers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("workers")
    made = make_run(folder / "run", request.getfixturevalue("data"))
    place = str(folder / "users.sqlite")
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.empty()
        place = server.url
    started = Workers(made, place)
    yield started
    if started.server.process is not None and started.server.process.poll() is None:
        started.server.end()


pytestmark = pytest.mark.slow


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux has it")
def test_workers_divide_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 5, 6, 7, 9})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: taken.append(cores))
    for number in range(2):
        take_cores(number, 2)
    assert taken == [[4, 6, 9], [5, 7]]
    take_cores(0, 6)  # more workers than cores
    assert len(taken) == 2


def test_both_answer_and_their_metrics_add_up(workers: Workers) -> None:
    Workers.wait_for(lambda: workers.send("both", "e0") == 200 and len(workers.answered()) == 2)
    appended = workers.metric('linrec_events_total{outcome="appended"}')
    before = workers.metric('linrec_requests_total{route="/v1/events"')
    threads = [
        threading.Thread(target=workers.send, args=(f"u{n}", f"e{n}")) for n in range(40)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert workers.metric('linrec_events_total{outcome="appended"}') == appended + 40
    assert workers.metric('linrec_requests_total{route="/v1/events"') == before + 40
    assert workers.metric("linrec_items ") == 16
    with client(workers.url) as http:
        assert http.get("/readyz").status_code == 200


def test_a_killed_worker_comes_back_and_nothing_is_lost(workers: Workers) -> None:
    acknowledged, over = [], threading.Event()
    restarts = workers.metric("linrec_worker_restarts_total")
    counted = workers.metric('linrec_events_total{outcome="appended"}')

    def send() -> None:
        number = 0
        while not over.is_set():
            with contextlib.suppress(httpx.TransportError):
                if workers.send("killed", f"k{number}") == 200:
                    acknowledged.append(f"k{number}")
                    number += 1

    sender = threading.Thread(target=send)
    sender.start()
    for number in (0, 1):
        Workers.wait_for(lambda: len(workers.pids()) == 2)
        old = workers.pids()[number]
        os.kill(old, signal.SIGKILL)
        Workers.wait_for(lambda: workers.pids().get(number, old) != old)  # noqa: B023
    seen = len(acknowledged)
    Workers.wait_for(lambda: len(acknowledged) > seen + 5)
    over.set()
    sender.join()
    store = open_store(workers.place)
    kept = [event.id for event in store.history("killed")]
    store.close()
    assert set(acknowledged) <= set(kept)
    assert len(kept) == len(set(kept))
    assert workers.metric("linrec_worker_restarts_total") == restarts + 2
    # restarted workers continue the counts
    assert (
        workers.metric('linrec_events_total{outcome="appended"}') >= counted + len(acknowledged) - 2
    )


def test_a_reload_reaches_all(workers: Workers, data: object) -> None:
    def fingerprints() -> set[str]:
        reloads = [line for line in workers.lines() if line["message"] == "reload"]
        return {f"{line['worker']} {line['fingerprint']}" for line in reloads if line["changed"]}

    make_run(workers.run, data, seed=5)  # type: ignore[arg-type]
    Workers.wait_for(lambda: len(workers.pids()) == 2)
    with client(workers.url, headers=HEAD) as http:
        fingerprint = http.post("/v1/reload").json()["fingerprint"]
    both = {f"0 {fingerprint}", f"1 {fingerprint}"}
    Workers.wait_for(lambda: both <= fingerprints())


def test_ctrl_c_leaves_no_orphans(workers: Workers) -> None:
    Workers.wait_for(lambda: len(workers.pids()) == 2)
    pids = list(workers.pids().values())
    process = workers.server.process
    assert process is not None
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == 0
    assert not any(map(alive, pids))
    with pytest.raises(httpx.TransportError), client(workers.url) as http:
        http.get("/healthz")


def test_workers_end_with_a_killed_supervisor(data: object, tmp_path: Path) -> None:
    workers = Workers(make_run(tmp_path / "run", data), str(tmp_path / "u.sqlite"))  # type: ignore[arg-type]
    pids = list(workers.pids().values())
    workers.server.kill()
    Workers.wait_for(lambda: not any(map(alive, pids)))


def test_a_run_that_cannot_be_served(data: object, tmp_path: Path) -> None:
    """The workers find it out, and the command ends with their sentence."""
    run = make_run(tmp_path / "run", data)  # type: ignore[arg-type]
    next(run.glob("*.safetensors")).write_bytes(b"spoiled")
    server = ServeProcess(run, str(tmp_path / "u.sqlite"), "--workers", "2")
    with pytest.raises(AssertionError, match="linrec: "):
        server.start()
    assert server.process is not None
    assert server.process.wait(SECONDS) == 2


def test_pauses_grow_up_to_a_bound() -> None:
    assert [pause_after(failures) for failures in range(4)] == [0.0, 0.5, 1.0, 2.0]
    assert pause_after(1000) == MAX_PAUSE
