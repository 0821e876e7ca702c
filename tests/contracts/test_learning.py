"""After item n comes item n + 1: every pair finds that out."""

from __future__ import annotations

import numpy as np
import pytest

from linrec.recommender import Recommender
from tests.contracts.cases import EVERY_BACKBONE, cycle, settings
from tests.contracts.conftest import Fitted


def assert_it_learned(found: Recommender) -> None:
    assert found.trained is not None
    history = found.trained.progress.history
    assert all(np.isfinite(row["loss"]) for row in history)
    assert history[-1]["loss"] < history[0]["loss"]
    evaluation = found.evaluate()
    assert evaluation["ndcg@10"] > 0.9
    assert evaluation["ndcg@10"] > evaluation.baselines["popularity"]["ndcg@10"] + 0.3


def test_it_learns_what_comes_next(fitted: Fitted) -> None:
    assert_it_learned(fitted.recommender)


@EVERY_BACKBONE
@pytest.mark.parametrize("attention", ["softmax", "linrec-decay"])
def test_it_learns_from_last_positions(backbone: str, attention: str) -> None:
    chosen = settings(backbone, attention, objective="last-position")
    assert_it_learned(Recommender(**chosen | {"epochs": chosen["epochs"] * 2 // 3}).fit(cycle()))
