"""One prepared dataset and one trained run for all who only read them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from linrec.data.dataset.store import SequenceStore
from linrec.recommender import Recommender, load
from tests.training.cases import SMALL, cycle


@cache  # a fixture that several modules import is a fixture of each
def _dataset(base: Path) -> Path:
    store = cycle(base / "cycle" / "data")
    assert store.path is not None
    return store.path


@cache
def _run(base: Path) -> Path:
    Recommender(**SMALL).fit(str(_dataset(base)), base / "cycle" / "run")
    return base / "cycle" / "run"


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of `linrec prepare`."""
    return _dataset(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def store(dataset: Path) -> SequenceStore:
    return SequenceStore.open(dataset)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run of it; copy it before you change it."""
    return _run(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def trained(run: Path) -> Recommender:
    return load(run)
