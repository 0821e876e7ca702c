"""Paired tests against scipy, and comparisons that must be refused."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from scipy import stats

from linrec.evaluation import (
    Evaluation,
    Interval,
    compare,
    comparison_table,
    comparison_to_dict,
    ndcg,
    paired,
)
from linrec.types import InputError

RNG = np.random.default_rng(0)
RANKS_A, RANKS_B = RNG.integers(0, 30, 300), RNG.integers(0, 25, 300)


def evaluation(**changes) -> Evaluation:
    known = Evaluation(
        protocol="full", split="test", seed=0, hide_seen=True, ks=(5, 10), fingerprint="abc",
        n_items=50, n_users=300, n_targets_seen_before=0, metrics={"mrr": Interval(0.1, 0.0, 0.2)},
    )  # fmt: skip
    return replace(known, **changes)


def frame(ranks: np.ndarray) -> pl.DataFrame:
    users = [f"u{user}" for user in range(len(ranks))]
    return pl.DataFrame(
        {"user": users, "target": 7, "history_length": 3, "rank": ranks},
        schema_overrides={"target": pl.Int64, "rank": pl.Int64},
    )


def test_paired_tests_are_scipys() -> None:
    a, b = ndcg(RANKS_A, 10), ndcg(RANKS_B, 10)
    test = paired(a, b)
    t, w = stats.ttest_rel(b, a), stats.wilcoxon(b, a)
    assert (test.t_statistic, test.t_p) == pytest.approx((t.statistic, t.pvalue))
    assert (test.wilcoxon_statistic, test.wilcoxon_p) == pytest.approx((w.statistic, w.pvalue))
    assert test.difference.mean == pytest.approx(test.mean_b - test.mean_a)
    assert test.difference.low < test.difference.mean < test.difference.high
    assert test.n_users == 300


def test_equal_models_do_not_differ() -> None:
    a = ndcg(RANKS_A, 10)
    test = paired(a, a)
    assert (test.t_p, test.wilcoxon_p) == (1.0, 1.0)
    assert test.difference == Interval(0.0, 0.0, 0.0)


def test_the_same_change_for_everybody_is_certain() -> None:
    test = paired(np.ones(20), np.zeros(20))
    assert (test.t_statistic, test.t_p) == (-np.inf, 0.0)
    assert test.wilcoxon_p < 1e-4
    plain = comparison_to_dict({"recall@10": test})
    assert json.loads(json.dumps(plain, allow_nan=False))["recall@10"]["t_statistic"] is None


def test_swapping_the_models_turns_the_sign() -> None:
    a, b = ndcg(RANKS_A, 10), ndcg(RANKS_B, 10)
    there, back = paired(a, b), paired(b, a)
    assert there.t_p == pytest.approx(back.t_p)
    assert there.wilcoxon_p == pytest.approx(back.wilcoxon_p)
    assert there.difference.mean == -back.difference.mean


@pytest.mark.parametrize(("a", "b"), [(np.ones(3), np.ones(4)), (np.ones(1), np.ones(1))])
def test_too_few_or_other_users_are_refused(a, b) -> None:
    with pytest.raises(InputError, match="users"):
        paired(a, b)


def test_users_are_aligned_by_id() -> None:
    ordered = compare((evaluation(), frame(RANKS_A)), (evaluation(), frame(RANKS_B)), ["ndcg@10"])
    shuffled = frame(RANKS_B).sample(fraction=1.0, shuffle=True, seed=1)
    again = compare((evaluation(), frame(RANKS_A)), (evaluation(), shuffled), ["ndcg@10"])
    expected = paired(ndcg(RANKS_A, 10), ndcg(RANKS_B, 10))
    assert ordered == again == {"ndcg@10": expected}


def test_without_names_the_cuts_both_have_are_compared() -> None:
    found = compare((evaluation(), frame(RANKS_A)), (evaluation(ks=(10, 20)), frame(RANKS_B)))
    assert list(found) == ["recall@10", "ndcg@10", "mrr@10", "mrr"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"fingerprint": "xyz"}, "dataset"),
        ({"split": "valid"}, "split"),
        ({"protocol": "pop100"}, "protocol"),
        ({"hide_seen": False}, "seen"),
    ],
)
def test_other_protocols_are_refused(change, named) -> None:
    with pytest.raises(InputError, match=named):
        compare((evaluation(), frame(RANKS_A)), (evaluation(**change), frame(RANKS_B)))


def test_the_seed_matters_where_it_draws_candidates() -> None:
    a, b = evaluation(protocol="pop100"), evaluation(protocol="pop100", seed=1)
    with pytest.raises(InputError, match="seed"):
        compare((a, frame(RANKS_A)), (b, frame(RANKS_B)))
    assert compare((evaluation(), frame(RANKS_A)), (evaluation(seed=1), frame(RANKS_B)))


def test_other_users_or_targets_are_counted() -> None:
    a = frame(RANKS_A)
    with pytest.raises(InputError, match=r"^2 users"):
        compare((evaluation(), a), (evaluation(), a[2:]))
    other_target = a.with_columns(target=pl.when(pl.col("user") == "u1").then(8).otherwise(7))
    with pytest.raises(InputError, match=r"^2 users"):
        compare((evaluation(), a), (evaluation(), other_target))
    numbered = a.with_columns(user=pl.int_range(pl.len()))
    with pytest.raises(InputError, match="type"):
        compare((evaluation(), a), (evaluation(), numbered))


def test_the_table_fits_a_terminal() -> None:
    comparison = compare((evaluation(), frame(RANKS_A)), (evaluation(), frame(RANKS_B)))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(comparison_table(comparison, ("softmax", "[x]")))
    text = console.export_text()
    assert "[x]" in text
    row = next(line for line in text.splitlines() if "NDCG@10" in line)
    test = comparison["ndcg@10"]
    assert f"{test.mean_a:.4f}" in row
    assert f"{test.difference.low:+.4f} to {test.difference.high:+.4f}" in row
