"""Training for baskets: one event of each, from what came before it."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import linrec
from linrec.backbones import build
from linrec.backbones.config import ModelConfig
from linrec.data.dataset.baskets import Baskets
from linrec.data.dataset.batches import all_position_batches, last_position_batches
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.repeat_index import RepeatIndex
from linrec.data.dataset.sequences import Sequences
from linrec.data.preparing.splitting import SplitConfig
from linrec.runs.config import RunConfig
from linrec.training.loop import epoch_batches
from linrec.types import PAD

# two users with baskets of 2, 3, 1, 2 and of 1, 4 events; items count the events
BEGINS = np.array([1, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 0, 0], dtype=bool)
TIMES = [[0.0, 0.0, 10.0, 10.0, 10.0, 20.0, 30.0, 30.0], [5.0, 50.0, 50.0, 50.0, 50.0]]
ROWS = Sequences.of([list(range(1, 9)), list(range(9, 14))], TIMES)
FOLLOWED = {2: {3, 4, 5}, 5: {6}, 6: {7, 8}, 9: {10, 11, 12, 13}}  # last event -> next basket


@pytest.mark.parametrize("make", [all_position_batches, last_position_batches])
@pytest.mark.parametrize("window", [100, 2])
def test_each_basket_is_predicted_once_from_before_it(make, window) -> None:
    """Over the epochs every event of it has its turn; windows may cut a basket."""
    drawn: dict[int, set[int]] = {last: set() for last in FOLLOWED}
    for epoch in range(60):
        batches = make(
            ROWS, window=window, tokens=50, rng=np.random.default_rng(epoch),
            baskets=Baskets.of(BEGINS, ROWS),
        )  # fmt: skip
        found = []
        for batch in batches:
            rows, columns = (batch.targets != PAD).numpy().nonzero()
            lasts = batch.items.numpy()[rows, columns].tolist()
            found += lasts
            for last, target in zip(lasts, batch.targets.numpy()[rows, columns], strict=True):
                drawn[last].add(int(target))
        assert sorted(found) == sorted(FOLLOWED)
        assert batches.n_targets == len(FOLLOWED)
    assert drawn == FOLLOWED


def test_a_basket_that_training_ends_in_has_the_events_before_the_end() -> None:
    cut = Sequences(ROWS.items, ROWS.starts, np.array([4, 11]), ROWS.times)
    baskets = Baskets.of(BEGINS, cut)
    rng = np.random.default_rng(0)
    assert {int(baskets.one_of(np.array([2]), rng)[0]) for _ in range(50)} == {2, 3}
    assert {int(baskets.one_of(np.array([9]), rng)[0]) for _ in range(50)} == {9, 10}


def test_counts_of_the_past_end_before_the_basket() -> None:
    batches = all_position_batches(
        ROWS, window=100, tokens=50, rng=np.random.default_rng(1), baskets=Baskets.of(BEGINS, ROWS)
    ).with_seen(None, RepeatIndex.of(ROWS))
    ends = {}
    for batch in batches:
        assert batch.past is not None
        rows, columns = (batch.targets != PAD).numpy().nonzero()
        lasts = batch.items.numpy()[rows, columns].tolist()
        ends |= dict(zip(lasts, batch.past.ends.tolist(), strict=True))
    assert ends == {2: 2, 5: 5, 6: 6, 9: 1}


def test_a_run_on_baskets_trains_for_them() -> None:
    """With `targets="next"` every event is a target, with "basket" one of each basket is."""
    rng = np.random.default_rng(0)
    events = [(f"u{u}", f"i{rng.integers(9)}", 1e9 + 1e5 * b)
              for u in range(5) for b in range(6) for _ in range(3)]  # fmt: skip
    log = pl.DataFrame(events, schema=["user", "item", "time"], orient="row")
    store = linrec.prepare(log)
    model = build(ModelConfig(width=8, heads=2), ItemFeatures.of(store.item_table, ()))
    counts = {}
    for targets in ("next", "basket"):
        config = RunConfig(split=SplitConfig(targets=targets))
        split = config.split.of(store)
        counts[targets] = epoch_batches(model, split, config, 0).n_targets
    assert counts == {"next": 5 * (18 - 2 - 1), "basket": 5 * (6 - 2 - 1)}
