from __future__ import annotations

from tests.evaluation.conftest import make_store, random_store

__all__ = ["make_store", "random_store"]
