"""What is recommended is new to the user and is an item."""

from __future__ import annotations

import polars as pl
import torch

from linrec.evaluation.scorer import model_scorer
from linrec.types import PAD
from tests.contracts.cases import N_ITEMS, cycle
from tests.contracts.conftest import Fitted
from tests.training.cases import cycle_events

SEEN = cycle_events().select("user", "item")


def test_nothing_seen_is_recommended_and_all_else_is(fitted: Fitted) -> None:
    found = fitted.recommender.recommend(k=N_ITEMS).table.select("user", "item")
    pairs = SEEN.select("user").unique().join(cycle().item_table.select("item"), how="cross")
    unseen = pairs.join(SEEN, on=["user", "item"], how="anti")
    assert found.sort("user", "item").equals(unseen.sort("user", "item"))


def test_only_items_are_recommended(fitted: Fitted) -> None:
    """Neither padding nor a mask, however many are requested."""
    found = fitted.recommender.recommend([["i03", "i04"]], k=10 * N_ITEMS, seen="keep").table
    assert sorted(found["item"]) == sorted(cycle().item_table["item"])
    assert found["score"].is_finite().all()


def test_scores_have_a_column_for_each_item(fitted: Fitted) -> None:
    model = fitted.recommender.model
    with torch.inference_mode():
        scores = model_scorer(model)(cycle().sequences())
    assert scores.shape == (cycle().n_users, N_ITEMS + 1)
    assert (scores[:, PAD] == float("-inf")).all()
    assert scores[:, PAD + 1 :].isfinite().all()
    assert model.mask_token is None or model.mask_token >= scores.shape[1]


def test_the_obvious_item_comes_first(fitted: Fitted) -> None:
    items = ["i02", "i03", "i04"]
    events = pl.DataFrame({"user": [0] * 3, "item": items, "time": [0, 60, 240]})
    found = fitted.recommender.recommend(events if fitted.time_gaps else [items], k=1).table
    assert found.select("item", "source").equals(
        pl.DataFrame({"item": ["i05"], "source": ["model"]})
    )
