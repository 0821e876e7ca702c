"""Data, runs and stores that the tests of serving share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.serving import Engine, EngineSettings, Store, open_store
from linrec.serving.stores.sharded import create_shards
from tests.serving.cases import make_run
from tests.serving.redis_server import RedisServer, why_no_redis
from tests.training.cases import cycle


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> SequenceStore:
    """Sixteen items, i00 to i15; the last has no title."""
    return cycle(tmp_path_factory.mktemp("serving") / "data")


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, data: SequenceStore) -> Path:
    return make_run(tmp_path_factory.mktemp("serving") / "run", data)


@pytest.fixture(scope="session")
def other_run(tmp_path_factory: pytest.TempPathFactory, data: SequenceStore) -> Path:
    """The same items, other weights."""
    return make_run(tmp_path_factory.mktemp("serving") / "other", data, seed=1)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    reason = why_no_redis()
    if reason is not None:
        pytest.skip(reason)
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(
    params=["memory", "sqlite", "shards", pytest.param("redis", marks=pytest.mark.service)]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store can be opened, empty."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.empty()
        return server.url
    if request.param == "shards":
        create_shards(tmp_path / "users", 3)
        return str(tmp_path / "users")
    return "memory" if request.param == "memory" else str(tmp_path / "users.sqlite")


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    opened = open_store(place)
    yield opened
    opened.close()


@pytest.fixture
def make_engine() -> Iterator[Callable[..., Engine]]:
    """Engines that are closed in the end."""
    made: list[Engine] = []

    def make(run: Path, store: Store | None = None, **settings: object) -> Engine:
        made.append(Engine(run, store or open_store("memory"), EngineSettings(**settings)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for engine in made:
        engine.close()
