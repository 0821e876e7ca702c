"""Several targets of a row: metrics by their definitions, ranks by brute force, paired by user."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linrec.data.dataset.pasts import past_items, seen_before
from linrec.data.dataset.sequences import Sequences, events_of
from linrec.data.dataset.splits import Owners, Targets, last_of_each
from linrec.evaluation import (
    EvaluationOptions,
    RankOptions,
    compare,
    draw_negatives,
    evaluate,
    evaluation_table,
    means,
    metric_names,
    per_user,
    rank_targets,
)
from linrec.evaluation.metrics import METRICS, per_row
from linrec.scoring import MISS, rank_among, rank_of_target
from linrec.types import InputError
from tests.evaluation.test_ranks import hashed

SEEDS = st.integers(0, 10_000)
SETS = st.lists(
    st.lists(st.one_of(st.integers(0, 30), st.just(MISS)), min_size=1, max_size=6, unique=True),
    min_size=1,
    max_size=8,
)


def slow(family: str, ranks: list[int], k: int) -> float:
    """By the list itself: position p, from 1, is relevant or not."""
    relevant = [position - 1 in ranks for position in range(1, k + 1)]
    hits, n = sum(relevant), len(ranks)
    if family == "recall":
        return hits / n
    if family == "hit":
        return float(hits > 0)
    if family == "mrr":
        return next((1 / (i + 1) for i, one in enumerate(relevant) if one), 0.0)
    if family == "ndcg":
        gain = sum(1 / math.log2(i + 2) for i, one in enumerate(relevant) if one)
        return gain / sum(1 / math.log2(i + 2) for i in range(min(k, n)))
    precisions = [sum(relevant[: i + 1]) / (i + 1) for i, one in enumerate(relevant) if one]
    return sum(precisions) / min(k, n)


@given(SETS, st.sampled_from(sorted(METRICS)), st.integers(1, 40))
def test_metrics_are_their_definitions(sets, family, k) -> None:
    rows = np.repeat(np.arange(len(sets)), [len(ranks) for ranks in sets])
    found = per_row(f"{family}@{k}", np.concatenate([np.array(one) for one in sets]), rows)
    assert found.tolist() == pytest.approx([slow(family, ranks, k) for ranks in sets])


def test_metrics_by_hand() -> None:
    ranks, rows = np.array([4, 0, MISS, 2]), np.array([0, 0, 0, 1])
    at_five = {family: per_row(f"{family}@5", ranks, rows).tolist() for family in METRICS}
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert at_five["recall"] == pytest.approx([2 / 3, 1])
    assert at_five["hit"] == [1, 1]
    assert at_five["ndcg"] == pytest.approx([(1 + 1 / math.log2(6)) / ideal, 1 / 2])
    assert at_five["map"] == pytest.approx([(1 / 1 + 2 / 5) / 3, 1 / 3])
    assert at_five["mrr"] == pytest.approx([1, 1 / 3])
    assert per_row("map@2", ranks, rows).tolist() == pytest.approx([1 / 2, 0])


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=60).map(np.array), st.integers(1, 50))
def test_with_one_target_nothing_changes(ranks, k) -> None:
    alone = np.arange(len(ranks))
    for family in METRICS:
        name = f"{family}@{k}"
        assert (
            per_user(name, ranks, Owners(alone, alone)).tolist() == per_user(name, ranks).tolist()
        )
    assert per_user(f"hit@{k}", ranks).tolist() == per_user(f"recall@{k}", ranks).tolist()
    assert per_user(f"map@{k}", ranks).tolist() == per_user(f"mrr@{k}", ranks).tolist()
    assert means(ranks, (k,), Owners(alone, alone)) == means(ranks, (k,))


def test_each_user_counts_once() -> None:
    owners = Owners(np.array([0, 1, 2]), np.array([0, 0, 1]))  # two histories of the first user
    assert per_user("recall@1", np.array([0, 5, 0]), owners).tolist() == [0.5, 1]
    assert metric_names((5,), owners) == ["recall@5", "ndcg@5", "mrr@5", "mrr"]
    sets = Owners(np.array([0, 0]), np.array([0]))
    assert metric_names((5,), sets) == ["recall@5", "hit@5", "ndcg@5", "map@5", "mrr@5", "mrr"]


@given(SEEDS)
def test_ranks_of_chosen_rows_are_those_of_copied_rows(seed) -> None:
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.integers(0, 4, (5, 9)).astype(np.float32))
    scores[:, 0] = -torch.inf
    rows = torch.from_numpy(np.sort(rng.integers(0, 5, 12)))
    targets = torch.from_numpy(rng.integers(1, 9, 12))
    drawn = torch.from_numpy(rng.integers(0, 9, (12, 4)))
    chosen = rank_of_target(scores, targets, rows), rank_among(scores, targets, drawn, rows)
    copied = rank_of_target(scores[rows], targets), rank_among(scores[rows], targets, drawn)
    assert [one.tolist() for one in chosen] == [one.tolist() for one in copied]


def split_of(store, kind: str):
    rng = np.random.default_rng(1)
    begins = rng.random(store.n_events) < 0.6
    begins[store.offsets[:-1]] = True
    targets = {"3": Targets(3), "basket": Targets(None, begins), "every": Targets(every=True)}[kind]
    rows = store.sequences()
    return targets.split(rows, last_of_each(rows, 3, targets.begins))


@given(SEEDS, st.sampled_from(["3", "basket", "every"]), st.booleans(), st.booleans())
def test_ranks_match_brute_force(random_store, seed, kind, hide, shares) -> None:
    store = random_store(seed, n_users=25)
    holdout, scorer = split_of(store, kind).test, hashed(store.n_items)
    options = RankOptions(hide_seen=hide, max_tokens=30, max_scores=200, shares=shares)
    found = rank_targets(scorer, store, holdout, "full", options)
    expected, seen = [], []
    index, row_of = holdout.targets_of(np.arange(len(holdout)))
    for target, row in zip(holdout.targets[index].tolist(), row_of.tolist(), strict=True):
        scores = scorer(holdout.histories.take(np.array([row])))[0].tolist()
        past = set(holdout.histories[row].tolist())
        rivals = set(range(1, len(scores))) - {target} - (past if hide else set())
        before = sum(scores[item] >= scores[target] for item in rivals)
        expected.append(MISS if hide and target in past else before)
        seen.append(target in past)
    assert found.ranks.tolist() == expected
    assert found.seen.tolist() == seen


@given(st.lists(st.lists(st.integers(1, 4), max_size=6), min_size=1, max_size=4), SEEDS)
def test_the_past_of_every_beginning(rows, seed) -> None:
    rng, whole = np.random.default_rng(seed), Sequences.of(rows)
    chosen = rng.integers(0, len(rows), 6)
    ends = np.array([rng.integers(whole.starts[row], whole.ends[row] + 1) for row in chosen])
    some = replace(whole.take(chosen), ends=ends)
    pairs = {tuple(pair) for pair in np.stack(past_items(some), 1).tolist()}
    assert pairs == {tuple(pair) for pair in np.stack(events_of(some), 1).tolist()}
    targets = rng.integers(1, 5, 6)
    expected = [target in some[row] for row, target in enumerate(targets)]
    assert seen_before(some, targets).tolist() == expected
    assert seen_before(some, targets, np.arange(6)).tolist() == expected


@pytest.mark.parametrize("kind", ["3", "basket", "every"])
def test_candidates_belong_to_their_target(random_store, kind: str) -> None:
    store = random_store(3)
    holdout = split_of(store, kind).test
    drawn = draw_negatives(store, holdout, "uni100", part="test", seed=0)
    assert drawn.shape == (len(holdout.targets), 100)
    assert not (drawn == holdout.targets[:, None]).any()
    assert drawn.min() == 1
    assert drawn.max() == store.n_items
    assert len(np.unique(drawn, axis=0)) == len(drawn), "each target has candidates of its own"
    counts = np.bincount(drawn.ravel(), minlength=store.n_items + 1)[1:]
    assert counts.min() > 0.5 * counts.mean(), "all items are about equally likely"
    again = draw_negatives(store, holdout, "uni100", part="test", seed=0)
    other = draw_negatives(store, holdout, "uni100", part="test", seed=1)
    assert (again == drawn).all()
    assert (other != drawn).any()


@pytest.mark.parametrize("protocol", ["full", "pop100"])
@pytest.mark.parametrize("kind", ["3", "basket", "every"])
def test_an_evaluation_and_its_comparison(random_store, kind: str, protocol: str) -> None:
    store = random_store(4)
    split, scorer = split_of(store, kind), hashed(store.n_items)
    options = EvaluationOptions(protocol=protocol, splitting="last-k (3)", targets=kind)
    figures, ranks = evaluate(scorer, store, split, options)
    holdout = split.test
    assert figures.n_users == len(np.unique(holdout.users)) == ranks["user"].n_unique()
    assert (figures.n_rows, figures.n_targets) == (len(holdout), len(holdout.targets))
    assert len(ranks) == len(holdout.targets)
    assert figures.n_users + figures.n_users_left_out == store.n_users
    assert ("map@10" in figures.metrics) == (kind != "every")
    by_hand = (
        ranks.group_by("user", "history_length")
        .agg((pl.col("rank") < 10).mean())
        .group_by("user")
        .agg(pl.col("rank").mean())["rank"]
        .mean()
    )
    assert figures["recall@10"] == pytest.approx(by_hand)
    assert f"{len(holdout.targets):,} targets" in str(evaluation_table(figures).title)
    same = compare((figures, ranks), (figures, ranks))
    assert same["recall@10"].n_users == figures.n_users
    assert same["recall@10"].mean_a == pytest.approx(figures["recall@10"])
    for field, value in {"splitting": "leave-one-out", "targets": "next"}.items():
        with pytest.raises(InputError, match=r"way of splitting|targets"):
            compare((figures, ranks), (replace(figures, **{field: value}), ranks))
