"""The baselines on real data, where they were measured before."""

from __future__ import annotations

from pathlib import Path

import pytest

from linrec.data.dataset.splits import Split, leave_one_out
from linrec.data.dataset.store import SequenceStore
from linrec.data.preparing.prepare import prepare
from linrec.evaluation import BASELINES, EvaluationOptions, Protocol, evaluate

pytestmark = pytest.mark.slow

# NDCG@10 on the test split; the draws of the sampled protocols are seeded
EXPECTED = {
    ("full", "popularity"): 0.0180,
    ("full", "last-item"): 0.1259,
    ("pop100", "popularity"): 0.044,
    ("pop100", "last-item"): 0.302,
    ("uni100", "popularity"): 0.205,
    ("uni100", "last-item"): 0.436,
}


@pytest.fixture(scope="module")
def ml1m(shared_data: Path) -> tuple[SequenceStore, Split]:
    events = shared_data / "ml-1m" / "ml-1m.inter.gz"
    if not events.is_file():
        pytest.skip(f"MovieLens-1M is not here: {events} does not exist")
    store = prepare(events, min_item_events=5)
    return store, leave_one_out(store.sequences())


@pytest.mark.parametrize("protocol", ["full", "pop100", "uni100"])
def test_baselines_of_movielens(ml1m: tuple[SequenceStore, Split], protocol: Protocol) -> None:
    store, split = ml1m
    scorer = BASELINES["popularity"].fit(split.train, store.n_items)
    evaluation, users = evaluate(scorer, store, split, EvaluationOptions(protocol=protocol))
    assert len(users) == 6_040
    assert evaluation.n_targets_seen_before == 0, "nobody rates a film twice"
    # other seeds of the draws move a sampled figure by a few thousandths
    margin = 0.0005 if protocol == "full" else 0.006
    for name in ("popularity", "last-item"):
        found = evaluation.baselines[name]["ndcg@10"]
        assert found == pytest.approx(EXPECTED[protocol, name], abs=margin)
