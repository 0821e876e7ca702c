"""Maximal marginal relevance: the formula item by item, and what re-ranking does to ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linrec.data.dataset.similarity import ItemSimilarity
from linrec.data.dataset.splits import leave_one_out
from linrec.evaluation import (
    BASELINES,
    Evaluation,
    EvaluationOptions,
    RankOptions,
    Reranker,
    compare,
    evaluate,
    rank_targets,
)
from linrec.evaluation.reranking import MIN_POOL, lists_of, pool_size
from linrec.scoring import MISS, top_k
from linrec.types import PAD, InputError

SEEDS = st.integers(0, 10_000)
DIVERSITY = st.sampled_from([0.1, 0.3, 0.5, 1.0])


def random_similarity(n_items: int, seed: int) -> ItemSimilarity:
    vectors = np.random.default_rng(seed).integers(-1, 3, (n_items + 1, 3)).astype(np.float32)
    vectors[0] = 0
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return ItemSimilarity(vectors / np.maximum(norms, 1), ("genre",))


def random_scores(rows: int, n_items: int, seed: int) -> torch.Tensor:
    """Few distinct ones, some hidden."""
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.integers(0, 30, (rows, n_items + 1)).astype(np.float32))
    scores[torch.from_numpy(rng.random(scores.shape) < 0.2)] = -torch.inf
    scores[:, PAD] = -torch.inf
    return scores


def check_list(scores: torch.Tensor, shown: list[int], k: int, reranker: Reranker) -> None:
    """Of one user, by the formula as it is written: each item gains most of those that are left.

    But for rounding: of two that gain the same to five places either may come first.
    """
    items, best = top_k(scores[None], pool_size(k))
    pairs = zip(items[0].tolist(), best[0].tolist(), strict=True)
    pool = {item: score for item, score in pairs if item != PAD}
    last, span = min(pool.values()), max(pool.values()) - min(pool.values())
    vectors = reranker.similarity.vectors.astype(np.float64)
    assert len(shown) == min(k, len(pool))
    for place, item in enumerate(shown):
        gains = {}
        for each in pool.keys() - set(shown[:place]):
            cosines = [float(vectors[each] @ vectors[other]) for other in shown[:place]]
            relevance = (1 - reranker.diversity) * (pool[each] - last) / span
            gains[each] = relevance - reranker.diversity * max(cosines, default=0.0)
        assert gains[item] >= max(gains.values()) - 1e-5


@settings(max_examples=15)
@given(SEEDS, DIVERSITY, st.sampled_from([1, 4, 60]))
def test_lists_match_the_formula(seed: int, diversity: float, k: int) -> None:
    scores, reranker = (
        random_scores(2, 150, seed),
        Reranker(diversity, random_similarity(150, seed)),
    )
    found = lists_of(scores, k, reranker)
    for row in range(2):
        shown = [item for item in found.items[row].tolist() if item != PAD]
        check_list(scores[row], shown, k, reranker)
        assert found.scores[row, : len(shown)].tolist() == scores[row, shown].tolist()


@given(SEEDS)
def test_almost_no_diversity_changes_nothing(seed: int) -> None:
    scores = random_scores(4, 150, seed)
    found = lists_of(scores, 20, Reranker(1e-9, random_similarity(150, seed)))
    assert found.items.tolist() == top_k(scores, 20)[0].tolist()


@given(SEEDS, DIVERSITY)
def test_a_short_list_begins_a_long_one(seed: int, diversity: float) -> None:
    reranker = Reranker(diversity, random_similarity(150, seed))
    scores = random_scores(4, 150, seed)
    long = lists_of(scores, MIN_POOL // 2, reranker).items
    assert lists_of(scores, 5, reranker).items.tolist() == long[:, :5].tolist()
    assert [len(set(row) - {PAD}) for row in long] == [int((row != PAD).sum()) for row in long]


def test_by_hand() -> None:
    # two comedies, then a drama: with enough diversity the drama comes second
    similarity = ItemSimilarity(np.array([[0, 0], [1, 0], [1, 0], [0, 1]], np.float32), ("genre",))
    scores = torch.tensor([[-torch.inf, 4.0, 3.0, 2.0]])  # relevance 1, 0.5, 0
    assert lists_of(scores, 3, Reranker(0.3, similarity)).items.tolist() == [[1, 2, 3]]
    assert lists_of(scores, 3, Reranker(0.4, similarity)).items.tolist() == [[1, 3, 2]]


def scorer_of(scores: torch.Tensor):
    """Scores by the last item of the history."""

    def score(histories) -> torch.Tensor:
        last = [int(histories[row][-1]) for row in range(len(histories))]
        return scores[last].clone()

    return score


@given(SEEDS, DIVERSITY, st.booleans())
def test_ranks_are_positions_in_the_list(random_store, seed, diversity, hide) -> None:
    store = random_store(seed)
    holdout = leave_one_out(store.sequences()).test
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(
        rng.permuted(np.tile(np.arange(store.n_items + 1.0), (99, 1)), axis=1)
    )
    scores[:, PAD] = -torch.inf
    reranker = Reranker(diversity, random_similarity(store.n_items, seed))
    options = RankOptions(hide_seen=hide, ks=(2, 3), reranker=reranker)
    found = rank_targets(scorer_of(scores), store, holdout, "full", options).ranks
    for row, target in enumerate(holdout.targets.tolist()):
        own = scores[int(holdout.histories[row][-1])].clone()
        if hide:
            own[holdout.histories[row]] = -torch.inf
        shown = [i for i in lists_of(own[None], 3, reranker).items[0].tolist() if i != PAD]
        rest = [i for i in own.argsort(descending=True).tolist() if own[i] > -torch.inf]
        order = shown + [item for item in rest if item not in shown]
        assert found[row] == (order.index(target) if target in order else MISS)


def test_constant_scores_earn_nothing(random_store) -> None:
    store = random_store(3)
    holdout = leave_one_out(store.sequences()).test
    options = RankOptions(hide_seen=False, ks=(3,))
    constant = scorer_of(torch.zeros(99, store.n_items + 1))
    plain = rank_targets(constant, store, holdout, "full", options)
    reranker = Reranker(0.5, random_similarity(store.n_items, 0))
    other = RankOptions(hide_seen=False, ks=(3,), reranker=reranker)
    assert (plain.ranks == store.n_items - 1).all()
    # the last of all, unless another of the same score was shown after it before
    assert (rank_targets(constant, store, holdout, "full", other).ranks >= 0).all()


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "0.5"])
def test_diversity_is_from_0_to_1(value: Any) -> None:
    with pytest.raises(InputError, match=r"diversity=.* must be a number between 0"):
        Reranker.of(value, random_similarity(3, 0))


def test_no_diversity_needs_no_features() -> None:
    assert Reranker.of(0.0, None) is None
    assert Reranker.of(None, None) is None
    with pytest.raises(InputError, match=r"diversity=0.3 needs items that can be compared.*items"):
        Reranker.of(0.3, None)


def featured(make_store):
    """A store whose items have a genre."""
    store = make_store([[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3], [1, 3, 4, 2]])
    genres = pl.Series("genre", ["a", "b"] * store.n_items)[: store.n_items]
    return replace(store, item_table=store.item_table.with_columns(genres))


def test_an_evaluation_says_that_it_was_reranked(make_store) -> None:
    store = featured(make_store)
    split = leave_one_out(store.sequences())
    scorer = BASELINES["popularity"].fit(split.train, store.n_items)
    plain, _ = evaluate(scorer, store, split, EvaluationOptions(seen="keep", ks=(2, 3)))
    options = EvaluationOptions(seen="keep", ks=(2, 3), diversity=1.0)
    reranked, users = evaluate(scorer, store, split, options)
    assert plain["diversity@2"] == plain.baselines["popularity"]["diversity@2"]
    assert reranked["diversity@2"] == 1.0 >= plain["diversity@2"]
    assert reranked.baselines == plain.baselines
    assert "re-ranked for diversity 1 by genre" in " ".join(reranked.notes)
    assert "re-ranked" not in " ".join(plain.notes)
    assert Evaluation.from_json(reranked.to_json()) == reranked
    assert users["diversity@2"].mean() == reranked["diversity@2"]


def test_two_evaluations_are_compared_in_their_lists_too(make_store) -> None:
    store = featured(make_store)
    split = leave_one_out(store.sequences())
    scorer = BASELINES["popularity"].fit(split.train, store.n_items)
    made = [
        evaluate(scorer, store, split, EvaluationOptions(seen="keep", ks=(2,), diversity=each))
        for each in (0.0, 1.0)
    ]
    found = compare(*made)
    assert found["diversity@2"].mean_b == made[1][0]["diversity@2"]
    assert found["novelty@2"].mean_a == made[0][0]["novelty@2"]


def test_a_sampled_ranking_has_no_lists() -> None:
    with pytest.raises(InputError, match="pop100 ranks a sample"):
        EvaluationOptions(protocol="pop100", diversity=0.2)
