from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.training.fixtures import dataset, run, store, trained

__all__ = ["ctrl_c", "dataset", "run", "store", "trained"]


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's usual answer to Ctrl-C, which a test run in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
