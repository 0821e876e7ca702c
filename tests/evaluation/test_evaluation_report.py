"""A whole evaluation: figures, baselines, users, notes, and JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import polars as pl
import pytest
from rich.console import Console

from linrec.data.dataset.splits import leave_one_out
from linrec.evaluation import (
    BASELINES,
    Evaluation,
    EvaluationOptions,
    evaluate,
    evaluation_table,
    means,
)
from linrec.scoring import MISS
from linrec.types import InputError


@pytest.fixture
def case(random_store):
    store = random_store(8)
    split = leave_one_out(store.sequences())
    return BASELINES["last-item"].fit(split.train, store.n_items), store, split


def render(table) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_the_figures_are_those_of_the_ranks(case) -> None:
    scorer, store, split = case
    evaluation, users = evaluate(scorer, store, split, EvaluationOptions(ks=(10, 5, 5)))
    assert evaluation.ks == (5, 10)
    expected = means(users["rank"].to_numpy(), (5, 10))
    assert {name: evaluation[name] for name in expected} == pytest.approx(expected)
    assert set(evaluation.metrics) - set(expected) == {
        "coverage@5", "coverage@10", "popularity@5", "popularity@10", "novelty@5", "novelty@10",
        "miscalibration@5", "miscalibration@10",
    }  # fmt: skip
    # the scorer is itself a baseline, so its column must repeat it
    assert evaluation.baselines["last-item"] == pytest.approx(
        {name: evaluation[name] for name in evaluation.metrics}
    )


def test_users_and_targets_come_in_the_callers_ids(make_store) -> None:
    store = make_store([[1, 2], [1, 2, 3], [4, 3, 2, 1]])
    split = leave_one_out(store.sequences())
    scorer = BASELINES["popularity"].fit(split.train, store.n_items)
    _, users = evaluate(scorer, store, split, EvaluationOptions(baselines=False))
    assert users.select("user", "target", "history_length").rows() == [
        ("u1", 103, 2),
        ("u2", 101, 3),
    ]
    assert users.schema["rank"] == pl.Int64


def test_constant_and_perfect_models_under_full_ranking(case) -> None:
    import torch

    _, store, split = case
    options = EvaluationOptions(ks=(1, 3), baselines=False)
    constant = lambda rows: torch.zeros(len(rows), store.n_items + 1)  # noqa: E731
    evaluation, _ = evaluate(constant, store, split, options)
    assert evaluation["recall@3"] == 0
    wanted = {
        split.test.histories[row].tobytes(): target for row, target in enumerate(split.test.targets)
    }

    def perfect(rows):
        picked = [int(wanted[rows[row].tobytes()]) for row in range(len(rows))]
        return torch.eye(store.n_items + 1)[picked]

    kept = EvaluationOptions(ks=(1, 3), baselines=False, seen="keep")
    evaluation, _ = evaluate(perfect, store, split, kept)
    assert {evaluation[name] for name in ("recall@1", "ndcg@3", "mrr@1", "mrr")} == {1.0}


@pytest.mark.parametrize("protocol", ["full", "pop100", "uni100"])
def test_it_goes_through_json_unchanged(case, protocol) -> None:
    evaluation, _ = evaluate(*case, EvaluationOptions(protocol=protocol, split="valid"))
    assert Evaluation.from_json(evaluation.to_json()) == evaluation
    assert json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))["protocol"] == protocol
    personal = {"personal", "personal-decay", "personal-last-item"}
    beside = {"popularity", "last-item"} | (set() if protocol == "full" else personal)
    assert set(evaluation.baselines) == beside
    assert evaluation.hide_seen == (protocol == "full")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"protocol": "full", "unheard": 1}', b"\xff\xfe", "null"]
)
def test_other_json_is_refused(text) -> None:
    with pytest.raises(InputError, match="linrec evaluate"):
        Evaluation.from_json(text)


def test_an_evaluation_of_an_early_version_is_read(case) -> None:
    """It calls the baselines floors."""
    evaluation, _ = evaluate(*case)
    content = evaluation.to_dict()
    content["floors"] = content.pop("baselines")
    assert content["floors"]
    assert Evaluation.from_json(json.dumps(content)) == evaluation
    assert "floors" not in evaluation.to_json()


def test_an_unknown_field_is_refused(case) -> None:
    evaluation, _ = evaluate(*case, EvaluationOptions(baselines=False))
    with pytest.raises(InputError, match="extra"):
        Evaluation.from_json(json.dumps(evaluation.to_dict() | {"extra": 1}))


def test_targets_seen_before_are_counted_and_explained(make_store) -> None:
    store = make_store([[1, 2, 3, 1], [1, 2, 3, 4], [2, 3, 4, 1]])
    split = leave_one_out(store.sequences())
    scorer = BASELINES["popularity"].fit(split.train, store.n_items)
    options = EvaluationOptions(ks=(3,), baselines=False)
    hidden, users = evaluate(scorer, store, split, options)
    assert hidden.n_targets_seen_before == 1
    assert users["rank"][0] == MISS
    assert "1 of 3 users (33.3%)" in hidden.notes[0]
    assert "with seen items kept" in hidden.notes[0]
    kept, _ = evaluate(scorer, store, split, replace(options, seen="keep"))
    assert kept.n_targets_seen_before == 1
    assert len(kept.notes) == 1
    assert "1 of 3 users (33.3%)" in kept.notes[0]
    assert "seen items are kept, so that these can be hits" in kept.notes[0]


def test_a_miss_is_a_miss_at_every_k(make_store) -> None:
    store = make_store([[1, 2, 3, 4, 1], [4, 3, 2, 1, 2]])
    split = leave_one_out(store.sequences())
    scorer = BASELINES["popularity"].fit(split.train, store.n_items)
    hidden, _ = evaluate(scorer, store, split, EvaluationOptions(ks=(5, 100)))
    assert hidden.n_targets_seen_before == hidden.n_users
    of_ranks = [name for name in hidden.metrics if not name.startswith(("coverage", "popularity"))]
    assert of_ranks
    assert {hidden[name] for name in of_ranks} == {0.0}


def test_a_cut_beyond_the_catalogue_is_said(make_store) -> None:
    store = make_store([[1, 2, 3, 4]])
    split = leave_one_out(store.sequences())
    scorer = BASELINES["popularity"].fit(split.train, store.n_items)
    evaluation, _ = evaluate(scorer, store, split)
    assert "fewer than k = 20" in evaluation.notes[-1]


@pytest.mark.parametrize(
    "wrong", [{"ks": ()}, {"ks": (0,)}, {"protocol": "pop10"}, {"split": "train"}, {"seed": -1}]
)
def test_wrong_options_are_refused_at_birth(wrong) -> None:
    with pytest.raises(InputError):
        EvaluationOptions(**wrong)


def test_a_metric_that_was_not_measured_is_named(case) -> None:
    evaluation, _ = evaluate(*case, EvaluationOptions(ks=(10,), baselines=False))
    with pytest.raises(InputError, match=r"choose from .*ndcg@10"):
        evaluation["ndcg@7"]


def test_the_table_shows_model_baselines_and_interval(case) -> None:
    evaluation, _ = evaluate(*case)
    text = render(evaluation_table(evaluation, "SASRec [a]"))
    row = next(line for line in text.splitlines() if "NDCG@10" in line)
    figure = evaluation.metrics["ndcg@10"]
    assert f"{figure.mean:.4f}" in row
    assert f"{figure.low:.4f} to {figure.high:.4f}" in row
    assert f"{evaluation.baselines['popularity']['ndcg@10']:.4f}" in row
    for word in ("SASRec [a]", "popularity", "last-item", "seen items hidden", "test split"):
        assert word in text
    sampled, _ = evaluate(*case, EvaluationOptions(protocol="pop100", baselines=False))
    assert "100 popular items (seed 0)" in " ".join(render(evaluation_table(sampled)).split())


def test_progress_reaches_every_user_once(case) -> None:
    message: list[int] = []
    options = EvaluationOptions(progress=lambda done, _: message.append(done))
    evaluation, _ = evaluate(*case, options)
    assert message[-1] == evaluation.n_users
    assert len(set(message)) == len(message), "baselines report no progress"


def test_every_option_changes_the_figures(case) -> None:
    def figures(**change):
        evaluation, _ = evaluate(*case, EvaluationOptions(**change))
        return evaluation.metrics, evaluation.baselines

    base = figures()
    for change in (
        {"protocol": "uni100"}, {"split": "valid"}, {"ks": (3,)}, {"seen": "keep"},
        {"seed": 1}, {"baselines": False},
    ):  # fmt: skip
        assert figures(**change) != base
