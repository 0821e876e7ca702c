"""On a Ray cluster the parts are the same, also when a worker or a machine is lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from linrec.batch.recommending import Job, recommend_everybody
from linrec.cluster import nodes, ray_pool
from linrec.cluster.options import EngineOptions
from linrec.cluster.pool import open_pool
from linrec.types import InputError
from tests.batch.test_recommending import job, parts

ray = pytest.importorskip("ray", reason="needs linrec[ray]")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_alone")]

MB = 1024**2


@pytest.fixture(scope="module")
def cluster(ray_alone: None) -> Iterator[Any]:
    """Two machines of one CPU each, as processes here; gone after the test."""
    del ray_alone
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 * MB, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={**small})
    made.add_node(**small)
    made.wait_for_nodes()
    try:
        yield made
    finally:
        made.shutdown()


def test_a_cluster_writes_the_same_parts(cluster: Any, run: Path, tmp_path: Path) -> None:
    recommend_everybody(job(run, tmp_path / "local"), part_users=5)
    engine = EngineOptions(engine="ray", address=cluster.address, workers=2)
    written = recommend_everybody(job(run, tmp_path / "ray"), engine, part_users=5)
    assert written.skipped == 0
    assert parts(tmp_path / "ray") == parts(tmp_path / "local")
    assert not ray.is_initialized()


class Lossy:
    """Tasks of which one ends its own process, the first time that it is done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self) -> Callable[[int], tuple[int, int]]:
        return self.square

    def square(self, task: int) -> tuple[int, int]:
        if task == 3 and not (self.folder / "lost").exists():
            (self.folder / "lost").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        return task * task, os.getpid()


def test_a_lost_worker_is_replaced(cluster: Any, tmp_path: Path) -> None:
    engine = EngineOptions(engine="ray", address=cluster.address, workers=2)
    with open_pool(engine) as pool:
        found = dict(pool.run(Lossy(tmp_path), list(range(12))))
    assert (tmp_path / "lost").exists()
    assert {place: square for place, (square, _) in found.items()} == {n: n * n for n in range(12)}
    assert len({process for _, process in found.values()} - {os.getpid()}) == 3


def test_a_lost_machine_changes_nothing(cluster: Any, run: Path, tmp_path: Path) -> None:
    recommend_everybody(job(run, tmp_path / "local"), part_users=2)
    lost = cluster.worker_nodes
    (machine,) = lost if isinstance(lost, set) else set(lost)
    gone = threading.Event()

    def lose(done: int, total: int) -> None:
        if done >= 3 and not gone.is_set():
            gone.set()
            cluster.remove_node(machine, allow_graceful=False)
            cluster.add_node(num_cpus=1, object_store_memory=80 * MB)
        assert done <= total

    engine = EngineOptions(engine="ray", address=cluster.address, workers=2)
    recommend_everybody(job(run, tmp_path / "ray"), engine, part_users=2, progress=lose)
    assert gone.is_set()
    assert parts(tmp_path / "ray") == parts(tmp_path / "local")


def refuse(task: int) -> int:
    raise InputError(f"there is no {task}; give another")


def start_refusing() -> Callable[[int], int]:
    return refuse


def test_what_a_cluster_cannot_do_is_one_sentence(
    cluster: Any, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(words: str, **options: Any) -> None:
        engine = EngineOptions(engine="ray", **{"address": cluster.address, **options})
        with pytest.raises(InputError, match=words) as caught:
            recommend_everybody(job(run, tmp_path / "recs"), engine)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "recs").exists()
        assert not ray.is_initialized()

    refused("workers=9 need a CPU each, and the Ray cluster has 2", workers=9)
    gone = EngineOptions(engine="ray", address=cluster.address)
    with (
        pytest.raises(InputError, match=f"cannot see {tmp_path / 'gone'}"),
        open_pool(gone, [tmp_path / "gone"]),
    ):
        pass
    with pytest.raises(InputError, match="there is no 1; give another"), open_pool(gone) as pool:
        list(pool.run(start_refusing, [1]))
    monkeypatch.setattr(nodes, "installed", lambda _: "99.0")
    refused("has linrec .* and this one is 99.0; install the same version on both")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at address=127.0.0.1:1"),
        ("nonsense", "is not HOST:PORT or auto"),
    ],
)
def test_no_cluster(run: Path, tmp_path: Path, address: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        recommend_everybody(
            job(run, tmp_path / "recs"), EngineOptions(engine="ray", address=address)
        )
    assert not (tmp_path / "recs").exists()


def test_ray_is_only_imported_when_it_is_asked_for(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    recommend_everybody(job(run, tmp_path / "local"))
    with pytest.raises(InputError, match=r"pip install 'linrec\[ray\]'"):
        recommend_everybody(job(run, tmp_path / "recs"), EngineOptions(engine="ray"))
    assert not (tmp_path / "recs").exists()


def test_an_answer_without_linrec() -> None:
    answer = {"linrec": None, "sees": []}
    assert str(nodes.trouble_of(answer, [])).startswith("has no linrec; install version")


def test_a_cluster_of_its_own_leaves_no_process(run: Path, tmp_path: Path) -> None:
    engine = EngineOptions(engine="ray", workers=1)
    with open_pool(engine) as pool:
        ((_, (_, process)),) = pool.run(Lossy(tmp_path), [1])
        assert process != os.getpid()
    for _ in range(100):
        if not Path(f"/proc/{process}").exists():
            break
        time.sleep(0.1)
    assert not Path(f"/proc/{process}").exists()
    assert ray_pool.RESTARTS > 0
    assert isinstance(job(run, tmp_path), Job)
