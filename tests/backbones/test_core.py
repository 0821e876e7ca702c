"""CORE: a history is a weighted mean of its items, and scores are cosines over a temperature."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from linrec.backbones.core import CORE
from linrec.evaluation.scorer import model_scorer
from linrec.layers import WeightedMean
from tests.contracts.cases import close, hidden, history, model, sequences

EITHER_OBJECTIVE = pytest.mark.parametrize("objective", ["all-positions", "last-position"])


def core(**changes: object) -> CORE:
    made = model("core", "linrec-decay", **changes)
    assert isinstance(made, CORE)
    return made


@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_no_score_is_above_one_over_the_temperature(temperature: float) -> None:
    found = core(temperature=temperature)
    with torch.inference_mode():
        scores = model_scorer(found)(sequences(*[history(length) for length in range(1, 9)]))[:, 1:]
    assert scores.abs().max() <= 1 / temperature * (1 + 1e-6)
    # after one event the user is that item
    first = int(history(1)[0, 0])
    assert scores[0, first - 1].item() == pytest.approx(1 / temperature, rel=1e-6)


@EITHER_OBJECTIVE
def test_a_user_is_a_weighted_mean_of_the_items(objective: str) -> None:
    found = core(objective=objective)
    items = torch.tensor([[2, 5, 9, 11]])
    user = F.normalize(hidden(found, items)[0, -1], dim=0)
    vectors = found.item(items)[0]
    weights = torch.linalg.lstsq(vectors.T, user[:, None]).solution[:, 0]
    close(weights @ vectors, user)
    assert (weights > 0).all()
    shares = weights / weights.sum()
    assert shares.max() > 1.01 * shares.min()


def test_equal_weights_make_it_the_plain_mean() -> None:
    found, items = core(), history(6)
    with torch.no_grad():
        found.mean.weigh.weight.zero_()
    expected = F.normalize(found.item(items)[0].mean(0), dim=0) / 0.07
    close(hidden(found, items)[0, -1], expected)


def test_items_drop_out_on_both_sides() -> None:
    found = core(dropout=0.5).train()
    torch.manual_seed(0)
    assert not torch.equal(found.item_vectors(), found.item_vectors())
    found.eval()
    assert torch.equal(found.item_vectors(), found.item_vectors())
    close(found.item_vectors()[1:].norm(dim=-1), torch.ones(16, dtype=torch.float64))


def test_what_drops_out_of_an_event_is_gone_from_the_mean() -> None:
    found = core(dropout=0.5).train()
    found.stack.eval()
    torch.manual_seed(0)
    kept = found.item_dropout(found.item(history(1)))
    torch.manual_seed(0)
    close(hidden(found, history(1)), F.normalize(kept, dim=-1) / 0.07)
    assert (kept == 0).any()


def test_the_stack_only_weighs() -> None:
    assert isinstance(core().mean, WeightedMean)
    one, other = core(seed=1), core(seed=2)
    other.item.load_state_dict(one.item.state_dict())
    close(hidden(one, history(1)), hidden(other, history(1)))
    assert not torch.allclose(hidden(one, history(5)), hidden(other, history(5)))
