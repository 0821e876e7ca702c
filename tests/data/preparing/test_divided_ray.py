"""On a Ray cluster `prepare` makes the same dataset, also when a machine is lost on the way."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from linrec.cli import app
from linrec.cluster.options import EngineOptions
from linrec.data.preparing.divided.driver import prepare_divided
from linrec.data.preparing.options import PrepareOptions
from linrec.data.preparing.prepare import prepare
from linrec.data.reading.events import files_of
from linrec.types import InputError
from tests.data.preparing.test_divided import content, log, sizes

ray = pytest.importorskip("ray", reason="needs linrec[ray]")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_alone")]

MB = 1024**2
MARK = "LINREC_TEST_MARK"
OPTIONS: dict[str, Any] = {
    "min_item_events": 6, "min_user_events": 4, "ties": "shuffle", "group": "basket",
    "context": "type,price,written", "shard_events": 150,
}  # fmt: skip


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


@pytest.fixture
def source(tmp_path: Path) -> Path:
    log().write_parquet(tmp_path / "log.parquet", row_group_size=64)
    return tmp_path / "log.parquet"


def test_a_cluster_makes_the_same_dataset(cluster: Any, source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "one", **OPTIONS)
    engine = EngineOptions(engine="ray", address=cluster.address, workers=2)
    prepare(source, tmp_path / "ray", engine=engine, **OPTIONS)
    assert content(tmp_path / "ray") == content(tmp_path / "one")
    assert not ray.is_initialized()
    assert {path.name for path in tmp_path.iterdir()} == {"log.parquet", "one", "ray"}


@pytest.mark.parametrize("stage", ["reading", "dividing", "sorting", "filtering", "writing"])
def test_a_lost_machine_changes_nothing(
    cluster: Any, source: Path, tmp_path: Path, stage: str
) -> None:
    prepare(source, tmp_path / "one", **OPTIONS)
    lost = cluster.worker_nodes
    (machine,) = lost if isinstance(lost, set) else set(lost)
    gone: list[str] = []

    def lose(now: str, done: int, total: int) -> None:
        assert done <= total
        if now == stage and not gone:
            gone.append(now)
            cluster.remove_node(machine, allow_graceful=False)
            cluster.add_node(num_cpus=1, object_store_memory=80 * MB)

    options = {name: value for name, value in OPTIONS.items() if name != "shard_events"}
    chosen = PrepareOptions(**options)
    files = files_of(source, chosen.reading)
    assert files is not None
    engine = EngineOptions(engine="ray", address=cluster.address, workers=2)
    prepare_divided(
        files, tmp_path / "ray", chosen, engine, shard_events=150, sizes=sizes(8), progress=lose
    )
    assert gone == [stage]
    assert content(tmp_path / "ray") == content(tmp_path / "one")


def test_what_a_cluster_cannot_do_is_one_sentence(
    cluster: Any, source: Path, tmp_path: Path
) -> None:
    def refused(words: str, engine: dict[str, Any], **options: Any) -> None:
        given = EngineOptions(engine="ray", **{"address": cluster.address, **engine})
        with pytest.raises(InputError, match=words) as caught:
            prepare(source, tmp_path / "ray", engine=given, **options)
        assert "\n" not in str(caught.value)
        assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]
        assert not ray.is_initialized()

    refused("workers=9 need a CPU each, and the Ray cluster has 2", {"workers": 9})
    refused("no Ray cluster answers at address=127.0.0.1:1", {"address": "127.0.0.1:1"})
    refused("removes all 600 events", {}, since="2030-01-01")
    refused("is not a number", {}, context="type=numeric")


def test_without_ray(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'linrec\[ray\]'"):
        prepare(source, tmp_path / "ray", engine=EngineOptions(engine="ray"))
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def test_the_command_leaves_no_process(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))  # what Ray starts inherits it
    command = ["prepare", str(source), "--out", str(tmp_path / "ray"), "--engine", "ray"]
    found = CliRunner().invoke(app, [*command, "--workers", "1"])
    assert found.exit_code == 0, found.output
    prepare(source, tmp_path / "one")
    assert content(tmp_path / "ray") == content(tmp_path / "one")
    for _ in range(100):
        if not processes(tmp_path):
            break
        time.sleep(0.1)
    assert not processes(tmp_path)
    again = CliRunner().invoke(app, [*command, "--workers", "1"])
    assert isinstance(again.exception, InputError)
    assert "already exists" in str(again.exception)


def processes(mark: Path) -> list[Path]:
    """Those that were started with the mark in their environment."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in environ.read_bytes():
                found.append(environ)
    return found
