"""The benchmark measures what it says, at a size where nothing is to be learned from it."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks import serving, serving_engine, serving_load, serving_workers
from linrec.serving import Engine, open_store
from tests.serving.serving_process import within


def test_the_generator_counts_what_was_answered(run: Path) -> None:
    engine = Engine(run, open_store("memory"))
    with within(engine) as url:
        plan = {
            "port": int(url.rsplit(":", 1)[1]), "connections": 3, "seconds": 60, "most": 20,
            "requests": [serving.event("a", "i01"), serving.recommend_request("a")],
        }  # fmt: skip
        found = asyncio.run(serving_load.load(plan))
        assert engine.user("a").events == 10  # every event has an id of its own
        wrong = asyncio.run(serving_load.load(plan | {"requests": [["/v1/events", {}]], "most": 4}))
    assert (found["failed"], wrong["failed"]) == (0, 4)
    assert found["all"]["requests"] == 20
    assert [each["requests"] for each in found["each"]] == [10, 10]
    assert found["all"]["p99_ms"] >= found["all"]["p50_ms"] > 0


def test_requests_at_a_fixed_rate_count_from_when_they_were_due(run: Path) -> None:
    engine = Engine(run, open_store("memory"))
    with within(engine) as url:
        plan = {
            "port": int(url.rsplit(":", 1)[1]), "connections": 2, "seconds": 0.5, "most": 1000,
            "requests": [serving.recommend_request("a")], "rate": 40, "sample": 0.25,
        }  # fmt: skip
        found = asyncio.run(serving_load.load(plan))
    assert found["all"]["requests"] == 20  # one every 25 ms, however fast they are answered
    assert found["seconds"] > 0.4
    assert [place for place, _ in found["samples"]] == [0] * 5
    assert found["samples"][0][1]["source"] == "cold-start"


def responding(*pieces: bytes) -> dict[str, object]:
    """What the generator finds at a server that responds in these pieces and closes at the end."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline() and pieces:
            await reader.readuntil(b"\r\n\r\n{}")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)  # so that it arrives by itself
            if b"close" in pieces[0]:
                break
        writer.close()

    async def measured() -> dict[str, object]:
        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        plan = {
            "port": server.sockets[0].getsockname()[1], "connections": 1, "seconds": 60, "most": 2,
            "requests": [["/", {}]], "sample": 1,
        }  # fmt: skip
        async with server:
            return await serving_load.load(plan)

    return asyncio.run(measured())


def test_a_response_may_come_in_pieces() -> None:
    pieces = (b"HTTP/1.1 200 OK\r\ncontent-len", b'gth: 9\r\n\r\n{"a"', b": 12}")
    assert responding(*pieces)["samples"] == [(0, {"a": 12})] * 2
    refused = responding(b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n", b"{}")
    assert (refused["failed"], refused["samples"]) == (2, [(0, {})] * 2)


def test_a_connection_that_the_server_closes_is_a_failure() -> None:
    closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"
    for pieces in ((), (b"HTTP/1.1 200 OK\r\nconnection: close\r\n",), (closing,)):
        with pytest.raises(ConnectionError):
            responding(*pieces)
    with pytest.raises(ValueError, match="without its length"):
        responding(b"HTTP/1.1 200 OK\r\n\r\n")


def test_parts_of_the_engine(tmp_path: Path) -> None:
    folder = ["--folder", str(tmp_path), "--engine-items", "40", "--engine-repeats", "3"]
    parser = argparse.ArgumentParser()
    serving_engine.add_arguments(parser)
    found = serving_engine.costs(parser.parse_args(folder))
    deep = found["models"]["4 layers, pre-norm, gate"]
    assert set(deep["engine"]) == {
        "append, while the log grows", "append", "append, state with every event",
        "append, without any sync", "append, 16 users in one commit", "recommend",
        "fdatasync, in place", "fsync, in place", "fdatasync, growing file", "fsync, growing file",
    }  # fmt: skip
    assert [row["users"] for row in deep["step"]] == [1, 1, 16, 16, 64, 64]
    assert any("step, compiled, 16 user(s)" in line for line in serving_engine.tables(found))


def test_the_tables(tmp_path: Path) -> None:
    times = {"requests": 5, "p50_ms": 1.0, "p99_ms": 2.0, "p99_95_ms": [1.5, 3.0]}
    about = {"command": "python", "date": "today", "machine": "m", "commit": "c"}
    other = about | {"command": "python --parts ann"}
    outcome = {
        "about": {"load": about, "history": about, "ann": other}, "threads": 1, "items": 10,
        "load": [{"kind": "events", "connections": 8, "a_second": 9.0} | times],
        "history": [
            {"way": way, "kind": kind, "length": length} | times
            for way in serving.WAYS for length in (10, 1000)
            for kind in ("events", "recommendations")
        ],
        "ann": {"items": 5, "vectors": "drawn", "recall_at_10": 1, "ann_ms": 1.0, "exact_ms": 2.0},
    }  # fmt: skip
    row = {"kind": "recommendations", "connections": 8, "rate": 7.0, "sampled": 3, "agree": 3}
    outcome["open_loop"] = [row | times]
    costs = {"server_cpu_ms": 1.0, "generator_cpu_ms": 0.1, "ratio": 1.2, "derived": 1.5}
    outcome["workers"] = [
        {"kind": "events", "files": 4, "workers": 2, "cores": 2, "a_second": 9.0} | costs
    ]
    message = serving.tables(outcome)
    assert "| recommendations | 8 | 7 | 1.0 | 2.0 | 3 of 3 |" in message
    assert "| events | 8 | 9 | 1.0 | 2.0 |" in message
    assert "history against 10 events: state, events: p50 1.00 x, p99 1.00 x (1,000" in message
    assert "| state | events | 10 | 1.00 | 2.00 (1.50 to 3.00) |" in message
    assert "| events | 4 | 2 | 2 | 9 | 1.20 x | 1.000 | 0.100 | 1.50 x |" in message
    assert "`python`, today, m, commit c (load, history); `python --parts ann`, today" in message
    assert "recall@10 1.000" in message
    serving.plot(outcome["history"], tmp_path / "plot.png")  # type: ignore[arg-type]
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_recall_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(serving, "SIZE", {})
    monkeypatch.setattr(sys, "argv", ["serving", "--ann-items", "300", "--ann-users", "3"])
    found = serving.ann(tmp_path, serving._arguments())
    assert found["items"] == 300
    assert 0.5 < found["recall_at_10"] <= 1


def test_the_interval_of_a_quantile() -> None:
    ordered = np.arange(10_000, dtype=np.float64)
    assert serving_load.interval(ordered, 0.99) == [9880.0, 9920.0]
    assert serving_load.interval(ordered[:3], 0.99) == [2.0, 2.0]


def test_workers_are_compared_with_one_on_one_core_at_the_same_number_of_files() -> None:
    def row(files: int, workers: int, cores: int, rate: float, cpu: float) -> dict[str, object]:
        return {"kind": "events", "files": files, "workers": workers, "cores": cores,
                "a_second": rate, "server_cpu_ms": cpu}  # fmt: skip

    rows = [row(1, 1, 1, 100.0, 1.0), row(4, 1, 2, 90.0, 1.0), row(4, 1, 1, 80.0, 1.0),
            row(4, 2, 2, 160.0, 1.25)]  # fmt: skip
    assert serving_workers.compared(rows[3], rows) == {"ratio": 2.0, "derived": 1.6}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux has it")
def test_a_server_is_started_on_some_cores() -> None:
    before = os.sched_getaffinity(0)
    with serving_workers.on_cores(1):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
