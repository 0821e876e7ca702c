"""The mechanism that CONTRIBUTING.md shows is all there is to write: one class and one line."""

from __future__ import annotations

import pytest
import torch

from linrec import ops
from linrec.ops import reference
from linrec.recommender import Recommender
from tests.contributing import run_example
from tests.ops.cases import (
    assert_close,
    assert_same_values_and_grads,
    attend,
    oracle,
    random_case,
    resume,
    start,
)
from tests.training.cases import SMALL, cycle

NAME = "linrec-positive"


@pytest.fixture(autouse=True)
def _added(monkeypatch: pytest.MonkeyPatch) -> None:
    example = run_example("Adding a mechanism", MECHANISMS=dict(ops.MECHANISMS))
    monkeypatch.setitem(ops.MECHANISMS, NAME, example["MECHANISMS"][NAME])
    scores = example["linrec_positive_scores"]
    monkeypatch.setattr(reference, "linrec_positive_scores", scores, raising=False)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padding", ["none", "end", "random"])
def test_it_follows_its_oracle(causal: bool, padding) -> None:
    case = random_case(70, seed=1, padding=padding)
    assert_same_values_and_grads(
        lambda c: attend(NAME, c, causal), lambda c: oracle(NAME, c, causal), case
    )


def test_the_kernels_run_for_it() -> None:
    assert ops.kernels(NAME) == ops.kernels()


def test_cut_and_resumed_it_is_uncut() -> None:
    case = random_case(70, seed=2)
    before, state = resume(NAME, case.at(slice(0, 30)), start(NAME, case))
    after, _ = resume(NAME, case.at(slice(30, None)), state)
    assert_close(torch.cat([before, after], 2), attend(NAME, case, True))


def test_its_matrix_is_never_negative() -> None:
    case = random_case(20, seed=3)
    assert (ops.attention_matrix(NAME, case.q, case.k) >= 0).all()


def test_a_model_learns_with_it() -> None:
    trained = Recommender(**SMALL | {"attention": NAME}).fit(cycle())
    assert trained.evaluate(baselines=False)["ndcg@10"] > 0.9
