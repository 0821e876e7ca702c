"""The power is cut: what was acknowledged is there, whichever un-synced writes reached the disk."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from linrec.serving import Engine, open_store
from linrec.serving.stores import SQLiteStore
from tests.serving.cases import assert_rebuilt_is_the_same
from tests.serving.power_cut import Call, Disk, Way, build_shim, calls, why_no_shim
from tests.serving.powered import EVENTS, USERS

ROOT = Path(__file__).parents[2]
WAYS: tuple[Way, ...] = ("dropped", "first", "some")
CUTS = 60  # moments, each with every way

reason = why_no_shim()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD is Linux's"),
    pytest.mark.skipif(reason is not None, reason=reason or ""),
]


def recorded(folder: Path, run: Path, synchronous: str) -> list[Call]:
    """The writes of a process that served until its end."""
    disk, journal = folder.resolve() / "disk", folder / "journal"
    disk.mkdir()
    env = os.environ | {
        "LD_PRELOAD": str(build_shim(folder)), "UNSYNCED_FOLDER": str(disk),
        "UNSYNCED_JOURNAL": str(journal), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.serving.powered", str(run), str(disk), synchronous]
    subprocess.run(command, cwd=ROOT, env=env, check=True, timeout=300)
    return list(calls(journal))


def cuts(found: list[Call], seed: int) -> Iterator[tuple[dict[str, bytes], str]]:
    """Files after a cut at random moments, and what had been said by then."""
    rng, disk = random.Random(seed), Disk()
    moments = {*rng.sample(range(len(found)), CUTS), len(found) - 1}
    for at, call in enumerate(found):
        disk.call(call)
        if at in moments:
            told = next((p for p in disk.paths() if p.endswith("/acknowledged")), None)
            said = disk.now(told).decode() if told else ""
            for way in WAYS:
                yield disk.after_cut(way, rng), said


def opened(files: dict[str, bytes], folder: Path) -> SQLiteStore:
    """A store of these files; what SQLite has in shared memory ends with the power."""
    folder.mkdir()
    for path, content in files.items():
        if not path.endswith(("-shm", "/acknowledged")):
            (folder / Path(path).name).write_bytes(content)
    found = open_store(str(folder / "users.sqlite"))
    assert isinstance(found, SQLiteStore)
    return found


def lost(store: SQLiteStore, said: str) -> list[str]:
    """What was acknowledged and is not there; fails if the rest is not as it should be."""
    assert store.problems() == []
    missing: list[str] = []
    for number in range(USERS):
        user = f"user-{number}"
        steps = [line.split()[1] for line in said.splitlines() if line.startswith(f"{user} ")]
        kept = [event.id for event in store.history(user)]  # compares checksums too
        if steps and steps[-1] == "forgetting" and not kept:
            continue
        since = len(steps) - steps[::-1].index("forgotten") if "forgotten" in steps else 0
        told = [step for step in steps[since:] if step != "forgetting"]
        missing += [name for name in told if name not in kept]
        more = [name for name in kept if name not in told]
        # one whose answer was still under way
        assert more in ([], [f"e{sum(step[0] == 'e' for step in steps)}"]), (told, kept)
    return missing


def test_acknowledged_events_survive(run: Path, tmp_path: Path) -> None:
    found = recorded(tmp_path, run, "FULL")
    assert any(call.kind == "T" for call in found)  # the log was emptied
    synced = {Path(call.path).name for call in found if call.kind == "S"}
    assert {"users.sqlite", "users.sqlite-wal", "disk"} <= synced
    for number, (files, said) in enumerate(cuts(found, seed=0)):
        with closing(opened(files, tmp_path / f"cut-{number}")) as store:
            assert lost(store, said) == [], f"cut {number}"
            if number % 20 == 0:
                engine = Engine(run, store)
                for user in store.users("", 10):
                    assert_rebuilt_is_the_same(engine, store, user)
    assert said.count(" e") == USERS * EVENTS  # the last one came after everything


def test_a_store_that_syncs_less_loses_events(run: Path, tmp_path: Path) -> None:
    """The same check finds what `synchronous=NORMAL` loses; it damages nothing."""
    found = recorded(tmp_path, run, "NORMAL")
    missing = []
    for number, (files, said) in enumerate(cuts(found, seed=0)):
        with closing(opened(files, tmp_path / f"cut-{number}")) as store:
            missing += lost(store, said)
    assert missing
