"""A soak of two servers on one store: `make soak`.

Both are killed (SIGKILL) at random moments and started again, load other models and serve two
different ones at times, while clients append events, some of them late, and delete users. In the
end the store is compared with what was acknowledged.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from linrec.serving import Engine, Store, open_store
from linrec.serving.stores.sharded import create_shards
from tests.serving.cases import make_run
from tests.serving.redis_server import RedisServer
from tests.serving.serving_process import ForkedServe
from tests.training.cases import cycle

USERS, SHARED = 6, 2  # the shared ones have two senders each, and are never deleted
RELOAD_EVERY = 10.0  # seconds
PAUSE = 0.01  # seconds between two requests of a sender
ANSWER_SECONDS = 10.0


@dataclass
class Report:
    kills: int = 0
    reloads: int = 0
    deletions: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    undeleted: int = 0  # events that were deleted and are there
    wrong_states: int = 0

    @property
    def failed(self) -> bool:
        return bool(self.lost or self.doubled or self.undeleted or self.wrong_states)

    def __str__(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in vars(self).items())


class Servers:
    """Two servers, each with a link to the run it serves."""

    def __init__(self, folder: Path, runs: list[Path], place: str, report: Report) -> None:
        self.urls: list[str | None] = [None, None]
        self.over = threading.Event()
        self._runs, self._report = runs, report
        self._links = [folder / "link-0", folder / "link-1"]
        for link in self._links:
            link.symlink_to(runs[0])
        self._processes = [ForkedServe(link, place, "--grace", "5") for link in self._links]
        self._starting, self._count = threading.Condition(), 0
        self._threads = [threading.Thread(target=self._live, args=(n,)) for n in (0, 1)]
        self._threads.append(threading.Thread(target=self._reload))

    def __enter__(self) -> Servers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()

    def _live(self, number: int) -> None:
        """Start, serve for a moment, be killed, until it is over."""
        process = self._processes[number]
        while not self.over.is_set():
            with self._starting_up():
                self.urls[number] = process.start()
            self.over.wait(random.uniform(0.1, 4.0))
            self.urls[number] = None
            process.kill()
            self._report.kills += 1

    @contextlib.contextmanager
    def _starting_up(self) -> Iterator[None]:
        with self._starting:
            self._count += 1
        try:
            yield
        finally:
            with self._starting:
                self._count -= 1
                self._starting.notify_all()

    def _reload(self) -> None:
        """Another model for one of the servers, while none is starting."""
        while not self.over.wait(RELOAD_EVERY):
            with self._starting:
                self._starting.wait_for(lambda: not self._count, timeout=60)
                number = random.randrange(2)
                link = self._links[number]
                other = next(run for run in self._runs if run != link.resolve())
                new = link.with_suffix(".new")
                new.symlink_to(other)
                new.replace(link)
                process = self._processes[number].process
                if process is not None and process.poll() is None:
                    process.send_signal(signal.SIGHUP)
                    self._report.reloads += 1
                time.sleep(1)


@dataclass
class Sender:
    """Sends events of one user one by one, each until it is acknowledged."""

    servers: Servers
    report: Report
    user: str
    name: str  # in the ids of its events
    deletes: bool
    acknowledged: list[str] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    uncertain: set[str] = field(default_factory=set)  # sent last, without a response
    _number: int = 0

    def run(self) -> None:
        with httpx.Client(timeout=ANSWER_SECONDS, trust_env=False) as http:
            while not self.servers.over.wait(PAUSE):
                self._append(http)
                if self.deletes and random.random() < 0.02:
                    self._delete(http)

    def _append(self, http: httpx.Client) -> None:
        name = f"{self.name}-{self._number}"
        late = random.random() < 0.05
        event = {"item": f"i{random.randrange(16):02d}", "id": name}
        # with a time, because a late event needs one that others do not pass
        event["time"] = self._number - (3 if late else 0)
        self.uncertain.add(name)
        if self._until_done(http, "POST", "/v1/events", {"user": self.user, "events": [event]}):
            self.uncertain.discard(name)
            self.acknowledged.append(name)
            self.report.acknowledged += 1
            self._number += 1

    def _delete(self, http: httpx.Client) -> None:
        if self._until_done(http, "DELETE", f"/v1/users/{self.user}", None):
            self.deleted.update(self.acknowledged)
            self.acknowledged.clear()
            self.report.deletions += 1
        else:  # it may have been carried out
            self.uncertain.update(self.acknowledged)
            self.acknowledged.clear()

    def _until_done(self, http: httpx.Client, method: str, path: str, body: object) -> bool:
        while not self.servers.over.is_set():
            url = random.choice(self.servers.urls)
            if url is None:
                time.sleep(0.01)
                continue
            with contextlib.suppress(httpx.TransportError):
                if http.request(method, url + path, json=body).status_code == 200:
                    return True
                time.sleep(0.05)
        return False


def compare(store: Store, senders: list[Sender], engines: list[Engine], report: Report) -> None:
    for user in {sender.user for sender in senders}:
        mine = [sender for sender in senders if sender.user == user]
        kept = [event.id for event in store.history(user)]
        acknowledged = {name for sender in mine for name in sender.acknowledged}
        report.lost += len(acknowledged.difference(kept))
        report.doubled += len(kept) - len(set(kept))
        deleted = {name for sender in mine for name in sender.deleted}
        report.undeleted += len(deleted.intersection(kept))
        report.wrong_states += sum(not _state_is_right(engine, store, user) for engine in engines)


def _state_is_right(engine: Engine, store: Store, user: str) -> bool:
    history = [event.item for event in store.history(user)]
    fresh = {each.item: each.score for each in engine.recommend(history=history, k=1000).items}
    kept = {each.item: each.score for each in engine.recommend(user, k=1000).items}
    same = kept.keys() == fresh.keys()
    return same and np.allclose([kept[i] for i in fresh], list(fresh.values()), 1e-4, 1e-4)


def soak(folder: Path, place: str, kills: int, minutes: float) -> Report:
    data = cycle(folder / "data")
    runs = [make_run(folder / f"run-{seed}", data, seed=seed) for seed in (0, 1)]
    report, until = Report(), time.monotonic() + 60 * minutes
    with Servers(folder, runs, place, report) as servers:
        own = [Sender(servers, report, f"own-{n}", "a", True) for n in range(USERS)]
        shared = [
            Sender(servers, report, f"shared-{n}", f"s{m}", False)
            for n in range(SHARED)
            for m in (0, 1)
        ]
        threads = [threading.Thread(target=sender.run) for sender in (*own, *shared)]
        for thread in threads:
            thread.start()
        while report.kills < kills and time.monotonic() < until:
            time.sleep(1)
            print(f"\r{report}", end="", file=sys.stderr, flush=True)
        servers.over.set()
        for thread in threads:
            thread.join()
    print(file=sys.stderr)
    store = open_store(place)
    engines = [Engine(run, store) for run in runs]
    compare(store, [*own, *shared], engines, report)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--store", choices=["sqlite", "shards", "redis"], default="sqlite")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        place = str(folder / "users.sqlite")
        if given.store == "redis":
            (folder / "redis").mkdir()
            place = stack.enter_context(RedisServer(folder / "redis")).url
        if given.store == "shards":
            place = str(folder / "users")
            create_shards(folder / "users", 4)
        report = soak(folder, place, given.kills, given.minutes)
    print(f"{given.store}: {report}")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
