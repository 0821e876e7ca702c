"""What every test may rely on: one thread, repeatable examples, and the real data where it is."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, settings

from tests.storage import Bucket, point_to, serving

REPO = Path(__file__).resolve().parents[1]
DEMO_USERS = 150  # enough to train on, few enough to wait for

# the first example pays for torch's lazy set-up, so time says nothing about a law
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# xdist's workers already share the cores
torch.set_num_threads(1)


QUICK = "linrec-decay"
LAWS = [REPO / "tests" / name for name in ("contracts", "nn", "ops")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The laws of mechanisms other than the default one are left to `make test`."""
    from linrec import ops

    others = set(ops.MECHANISMS) - {QUICK}
    for item in items:
        values = getattr(getattr(item, "callspec", None), "params", {}).values()
        if item.path.parent in LAWS and any(isinstance(v, str) and v in others for v in values):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def ray_alone() -> Iterator[None]:
    """One process at a time starts clusters: they are large, and tests look for what they leave."""
    with FileLock(Path(tempfile.gettempdir()) / "linrec-tests-ray.lock"):
        yield


@pytest.fixture(scope="session")
def storage() -> Iterator[str]:
    """The endpoint of an S3 server."""
    with serving() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket that the environment has credentials for; the cache is `tmp_path/cache`."""
    point_to(storage, tmp_path / "cache", monkeypatch)
    return Bucket(storage)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real datasets, which lies beside the project and not in it."""
    place = REPO.parent / "shared" / "data"
    if not place.is_dir():
        pytest.skip(f"the real datasets are not here: {place} does not exist")
    return place


@pytest.fixture(scope="session")
def demo_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with events.csv and items.csv as `linrec demo` leaves them, less most members."""
    import polars as pl

    from linrec.cli.demo import as_csv
    from linrec.data.downloads.demo import demo_events

    folder = tmp_path_factory.mktemp("demo")
    events, items = demo_events()
    some = events["user"].unique().sort().head(DEMO_USERS)
    events.filter(pl.col("user").is_in(some.implode())).write_csv(folder / "events.csv")
    as_csv(items).write_csv(folder / "items.csv")
    return folder
