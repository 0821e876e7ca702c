"""Figures of targets that the user had had, and of new ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from linrec.data.dataset.sequences import Sequences
from linrec.data.dataset.splits import leave_one_out
from linrec.evaluation.by_seen import NEW, SEEN, figures_by_seen
from linrec.evaluation.report import EvaluationOptions, evaluate
from linrec.evaluation.tables import seen_table
from linrec.scoring import MISS


def test_each_target_counts_by_itself() -> None:
    """Ranks 0 and 2 of seen targets, 1 and a miss of new ones."""
    seen = np.array([True, False, True, False])
    found = figures_by_seen(
        seen, np.array([0, 1, 2, MISS]), {"other": np.array([5, 0, 30, 9])}, (1, 10)
    )
    assert found[SEEN].n_targets == found[NEW].n_targets == 2
    assert found[SEEN].metrics["ndcg@10"] == pytest.approx((1 + 1 / 2) / 2)
    assert found[NEW].metrics["ndcg@10"] == pytest.approx(1 / math.log2(3) / 2)
    assert found[SEEN].metrics["recall@1"] == 0.5
    assert found[SEEN].baselines["other"]["recall@10"] == 0.5
    assert found[NEW].baselines["other"]["recall@10"] == 1.0


@pytest.mark.parametrize("seen", [np.zeros(3, bool), np.ones(3, bool)])
def test_without_both_kinds_there_is_nothing_to_tell_apart(seen) -> None:
    assert figures_by_seen(seen, np.arange(3), {}, (10,)) == {}


def test_an_evaluation_tells_them_apart_where_seen_items_are_kept(random_store) -> None:
    store = random_store()
    split = leave_one_out(store.sequences())
    row = torch.arange(store.n_items + 1.0)

    def scorer(histories: Sequences) -> torch.Tensor:
        return row.repeat(len(histories), 1)

    kept, _ = evaluate(scorer, store, split, EvaluationOptions(seen="keep"))
    assert sum(part.n_targets for part in kept.by_seen.values()) == kept.n_users
    mean = sum(p.n_targets * p.metrics["ndcg@10"] for p in kept.by_seen.values()) / kept.n_users
    assert mean == pytest.approx(kept["ndcg@10"])
    assert {*kept.by_seen[SEEN].baselines} == {*kept.baselines}
    assert len(seen_table(kept).columns) == 3 + len(kept.baselines)
    assert type(kept).from_json(kept.to_json()).by_seen == kept.by_seen
    hidden, _ = evaluate(scorer, store, split, EvaluationOptions(seen="hide"))
    assert hidden.by_seen == {}
