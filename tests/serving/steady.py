"""Ten minutes of steady load on one server: `make steady`.

    python -m tests.serving.steady --minutes 10

Clients append events, ask for lists, explanations and users, delete users, send requests that are
refused, and open a new connection now and then. Users and what is kept of each are bounded, so the
server has nothing to grow for. Its memory and descriptors are read all the time; after a warm-up
(a quarter of the time) they must not grow.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.serving.cases import make_run
from tests.serving.serving_process import ServeProcess, client
from tests.training.cases import cycle

CLIENTS, USERS, KEPT = 6, 300, 50
PAUSE = 0.005  # seconds between two requests of a client
PER_CONNECTION = 200  # requests
WARM_UP = 0.25  # of the time
MAX_GROWTH = 0.03  # of the memory after the warm-up, for what the allocator rounds


@dataclass(frozen=True)
class Sample:
    seconds: float
    memory: int  # bytes, resident
    descriptors: int
    threads: int


@dataclass
class Steady:
    """What the server answered and used."""

    samples: list[Sample] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    disk: int = 0  # bytes of the store in the end

    def parts(self) -> tuple[list[Sample], list[Sample]]:
        """The samples of the first and the last tenth after the warm-up."""
        warm = self.samples[int(len(self.samples) * WARM_UP) :]
        some = max(len(warm) // 10, 1)
        return warm[:some], warm[-some:]

    def growth(self) -> float:
        """Of the memory: the medians of the two parts."""
        first, last = (_median([each.memory for each in part]) for part in self.parts())
        return last / first - 1

    def more_descriptors(self) -> int:
        """Than ever in the first part, where connections come and go as later."""
        first, last = (_median([each.descriptors for each in part]) for part in self.parts())
        return last - first

    @property
    def failed(self) -> bool:
        wrong = [status for status in self.statuses if status >= 500]
        return bool(wrong) or self.growth() > MAX_GROWTH or self.more_descriptors() > CLIENTS

    def __str__(self) -> str:
        first, last = (part[len(part) // 2] for part in self.parts())
        lines = [
            f"{name} after {each.seconds:,.0f} s: {each.memory / 2**20:,.1f} MiB, "
            f"{each.descriptors} descriptors, {each.threads} threads"
            for name, each in (("start", self.samples[0]), ("warm", first), ("end", last))
        ]
        counts = ", ".join(f"{n:,} x {status}" for status, n in sorted(self.statuses.items()))
        most = max(each.memory for each in self.samples)
        lines.append(f"growth {self.growth():+.2%}, at most {most / 2**20:,.1f} MiB")
        return "\n".join([*lines, f"responses: {counts}; store {self.disk / 2**20:,.1f} MiB"])


def _median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def sample(pid: int, begin: float) -> Sample:
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return Sample(
        time.monotonic() - begin, int(status["VmRSS"].split()[0]) * 1024,
        len(list(Path(f"/proc/{pid}/fd").iterdir())), int(status["Threads"]),
    )  # fmt: skip


def ask(http: httpx.Client, rng: random.Random) -> int:
    """One request of any kind; its status."""
    user = f"user-{rng.randrange(USERS)}"
    item = f"i{rng.randrange(16):02d}"
    kinds: list[tuple[float, Callable[[], httpx.Response]]] = [
        (50, lambda: http.post("/v1/events", json={
            "user": user, "events": [{"item": item, "id": f"{rng.getrandbits(64):x}"}]})),
        (40, lambda: http.post("/v1/recommendations", json={"user": user, "k": 5})),
        (2, lambda: http.post("/v1/recommendations", json={"history": [item], "then": 1})),
        (2, lambda: http.post("/v1/explanations", json={"history": [item], "item": "i01"})),
        (2, lambda: http.get(f"/v1/users/{user}")),
        (2, lambda: http.delete(f"/v1/users/{user}")),
        (1, lambda: http.get("/metrics")),
        (1, lambda: http.get("/nowhere")),
    ]  # fmt: skip
    (chosen,) = rng.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])
    return chosen().status_code


def send(url: str, seed: int, over: threading.Event, found: Steady) -> None:
    rng = random.Random(seed)
    while not over.is_set():
        with client(url) as http:
            for _ in range(PER_CONNECTION):
                found.statuses[ask(http, rng)] += 1
                if over.wait(PAUSE):
                    return


def steady(folder: Path, seconds: float, every: float) -> Steady:
    run, place = make_run(folder / "run", cycle(folder / "data")), folder / "users.sqlite"
    server = ServeProcess(run, str(place), "--keep-events", str(KEPT), "--cache-mb", "4")
    url, found, over = server.start(), Steady(), threading.Event()
    begin = time.monotonic()
    threads = [
        threading.Thread(target=send, args=(url, seed, over, found)) for seed in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    pid: int = server.process.pid  # type: ignore[union-attr]
    for _ in range(int(seconds / every)):  # time in which the whole machine stood still is none
        found.samples.append(sample(pid, begin))
        print(f"\r{found.samples[-1]}", end="", file=sys.stderr, flush=True)
        time.sleep(every)
    over.set()
    for thread in threads:
        thread.join()
    print(file=sys.stderr)
    found.disk = sum(each.stat().st_size for each in folder.glob("users.sqlite*"))
    server.end()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        found = steady(Path(name), 60 * given.minutes, 1.0)
    print(found)
    sys.exit(1 if found.failed else 0)


if __name__ == "__main__":
    main()
