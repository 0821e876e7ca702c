"""What a model makes of its own request time is lost with the time of another user."""

from __future__ import annotations

import numpy as np
import polars as pl

from experiments.training import with_gaps_of_others
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.recommender import Recommender
from tests.training.cases import SMALL

N_ITEMS, USERS = 16, 120
SHORT, LONG = 10, 100_000


def visits() -> SequenceStore:
    """The wait says what comes next: soon the item after it, later the one five on."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(USERS):
        item, time = int(rng.integers(N_ITEMS)), 1_600_000_000
        for _ in range(int(rng.integers(8, 12))):
            rows.append((user, f"i{item:02d}", time))
            soon = bool(rng.integers(2))
            item, time = (item + (1 if soon else 5)) % N_ITEMS, time + (SHORT if soon else LONG)
    return prepare(pl.DataFrame(rows, schema=["user", "item", "time"], orient="row"), times="real")


def test_the_figure_falls_to_that_of_an_unknown_time_or_below() -> None:
    store = visits()
    settings = SMALL | {"time_gaps": True, "unknown_time": 0.3, "seen": "keep"}
    made = Recommender(**settings, repeat_head="off").fit(store)
    known, unknown = (
        made.evaluate(baselines=False, request_time=time)["ndcg@10"]
        for time in ("known", "unknown")
    )
    assert known > 0.95
    # both items are first and second, in either order
    assert 0.7 < unknown < 0.9
    for seed in range(3):
        assert with_gaps_of_others(made, store, seed)["ndcg@10"] < unknown + 0.02


def test_its_own_gaps_give_its_own_figure(monkeypatch) -> None:
    """So that a fall comes from whose gaps they are, and from nothing else."""
    store = visits()
    made = Recommender(
        **SMALL | {"time_gaps": True, "seen": "keep", "repeat_head": "off", "epochs": 2}
    ).fit(store)

    class Nobody:
        def permutation(self, gaps: np.ndarray) -> np.ndarray:
            return gaps

    monkeypatch.setattr(np.random, "default_rng", lambda *_: Nobody())
    found = with_gaps_of_others(made, store)
    monkeypatch.undo()
    assert found["ndcg@10"] == made.evaluate(baselines=False)["ndcg@10"]
