from __future__ import annotations

from tests.evaluation.conftest import make_store, random_store
from tests.training.fixtures import dataset, run, store, trained

__all__ = ["dataset", "make_store", "random_store", "run", "store", "trained"]
