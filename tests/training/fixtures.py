"""One prepared dataset and one trained run for all who only read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from linrec.data.store import SequenceStore
from linrec.recommender import Recommender, load
from tests.training.cases import SMALL, cycle


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of `linrec prepare`."""
    store = cycle(tmp_path_factory.mktemp("cycle") / "data")
    assert store.path is not None
    return store.path


@pytest.fixture(scope="session")
def store(dataset: Path) -> SequenceStore:
    return SequenceStore.open(dataset)


@pytest.fixture(scope="session")
def run(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run of it; copy it before you change it."""
    place = tmp_path_factory.mktemp("runs") / "run"
    Recommender(**SMALL).fit(str(dataset), place)
    return place


@pytest.fixture(scope="session")
def trained(run: Path) -> Recommender:
    return load(run)
