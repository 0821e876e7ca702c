"""The capacity table: computed from what was measured, and right about stores of other sizes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from benchmarks import serving_capacity, serving_ingest, serving_users
from linrec.serving import open_store
from linrec.serving.stores import SQLiteStore
from tests.serving.redis_server import RedisServer

PAGE = serving_capacity.PAGE.read_text("utf-8")


def store(**changes: Any) -> dict[str, Any]:
    rates = {"list": 1000.0, "event": 500.0}
    rows = [{"kind": kind, "connections": 8, "a_second": rate} for kind, rate in rates.items()]
    return {
        "user_bytes": 200, "event_bytes": 30.0, "id_bytes": 20.0, "long_event_bytes": 70.0,
        "state_bytes": 18_000, "server_bytes_after": 5e8, "rows": rows,
    } | changes  # fmt: skip


def test_what_a_store_takes() -> None:
    assert serving_capacity.stored_bytes(store(), 10, 100) == 10 * (200 + 18_000 + 5_000)
    assert serving_capacity.stored_bytes(store(), 1, 1000) == 200 + 18_000 + 70_000


def test_processes_for_a_rate() -> None:
    assert serving_capacity.processes(store(), 1.0) == 1
    # an event takes 2 ms and a list 1 ms: 700 of both are 2.1 s of work in 0.7 s
    assert serving_capacity.processes(store(), 699.9) == 3
    assert serving_capacity.processes(store(), 701.0) == 4


def test_the_table() -> None:
    outcome = {"stores": {"sqlite": store(), "redis": store(user_bytes=1000)}}
    table = serving_capacity.capacity(outcome, (1_000_000,), events=100, a_day=86_400 / 3e6 * 7)
    assert table.splitlines()[-1] == "| 1,000,000 | 7.0 | 23.2 GB | 1 | 24 GB | 1 | 500 MB |"


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("redis", marks=pytest.mark.service)])
def test_the_constants_predict_another_store(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_users, "SIZED_USERS", 200)

    def make() -> Any:
        if kind == "redis":
            server: RedisServer = request.getfixturevalue("redis_server")
            return serving_users.RedisPlace(server)
        number = len(list(tmp_path.iterdir()))
        return serving_users.SQLitePlace(str(tmp_path / f"{number}.sqlite"))

    found = serving_users.sizes(make)
    place = make()
    opened = open_store(place.address)
    opened.commit([serving_users.sized_user(number, 60, True) for number in range(300)])
    opened.close()
    expected = serving_capacity.stored_bytes(found | {"state_bytes": 0}, 300, 60)
    assert place.bytes() == pytest.approx(expected, rel=0.15)


def test_users_are_generated_and_imported(tmp_path: Path) -> None:
    data = serving_users.histories(users=50, items=20, seed=0)
    assert (data.n_users, data.n_items) == (50, 20)
    opened = open_store(str(tmp_path / "u.sqlite"))
    assert set(serving_users.imported(data, opened)) >= {"load_seconds", "load_again_seconds"}
    assert isinstance(opened, SQLiteStore)
    assert len(opened.users("", 100)) == 50
    lengths = [len(opened.history(user)) for user in opened.users("", 100)]
    assert (min(lengths), max(lengths)) == (2, 8)
    assert sum(lengths) == int(data.offsets[-1])
    opened.close()


@pytest.mark.slow
def test_every_kind_of_request_is_measured(tmp_path: Path) -> None:
    args = argparse.Namespace(users=80, items=20, seed=0, requests=20, connections=2)
    data = serving_users.histories(args.users, args.items, args.seed)
    found = serving_users.measured(tmp_path, "sqlite", data, args)
    assert [(row["kind"], row["connections"], row["requests"]) for row in found["rows"]] == [
        (kind, connections, 20)
        for kind in ("first list", "list", "event", "event, no state yet")
        for connections in (1, 2)
    ]
    assert found["state_bytes"] > found["packed_state_bytes"]


def test_ingest_is_measured(tmp_path: Path) -> None:
    args = argparse.Namespace(events=400, users=50, items=20)
    rows = serving_ingest.measured(tmp_path, args)
    assert [(row["events"], row["stored"]) for row in rows] == [(400, 400), (400, 0), (40, 40)]


def test_no_figure_on_the_page_was_typed_in() -> None:
    for module, figures in (
        (serving_capacity, serving_capacity.FIGURES), (serving_ingest, serving_ingest.OUT)
    ):  # fmt: skip
        assert figures.exists()
        assert module.rendered(PAGE) == PAGE
