"""BERT4Rec asks with a mask, and a mask is never an answer."""

from __future__ import annotations

import pytest
import torch

from linrec.backbones.bert4rec import BERT4Rec
from linrec.evaluation.scorer import model_scorer
from linrec.types import PAD
from tests.contracts.cases import N_ITEMS, close, hidden, history, model, sequences

MASK = N_ITEMS + 1


def bert4rec(**changes: object) -> BERT4Rec:
    made = model("bert4rec", "linrec-decay", **changes)
    assert isinstance(made, BERT4Rec)
    return made


@pytest.mark.parametrize("objective", ["cloze", "last-position"])
def test_the_mask_comes_after_the_newest_event(objective: str) -> None:
    found = bert4rec(objective=objective)
    rows = sequences(torch.tensor([3, 4, 5]), torch.tensor([7]), torch.tensor([]))
    expected = [[3, 4, 5, MASK], [7, MASK, PAD, PAD], [MASK, PAD, PAD, PAD]]
    assert found.read(rows).items.tolist() == expected
    assert found.mask_token == MASK


def test_the_mask_does_not_count_towards_max_length() -> None:
    found = bert4rec(max_length=2).read(sequences(torch.tensor([3, 4, 5])))
    assert found.items.tolist() == [[4, 5, MASK]]


def test_what_is_known_of_a_user_stands_at_the_mask() -> None:
    found, items = bert4rec(), history(9)
    requested = torch.cat([items, torch.tensor([[MASK]])], 1)
    close(found.encode(sequences(items))[0], hidden(found, requested)[0, -1])


def test_the_mask_has_a_position_of_its_own() -> None:
    found = bert4rec(positions=4)
    assert found.stack.position.num_embeddings == 5
    rows = sequences(torch.tensor([1, 2, 3, 4]))
    before = found.encode(rows)
    with torch.no_grad():
        found.stack.position.weight[4, :3] += 1
    assert not torch.allclose(found.encode(rows), before)
    shorter = sequences(torch.tensor([1, 2, 3]))
    kept = found.encode(shorter)
    with torch.no_grad():
        found.stack.position.weight[4, :3] += 1
    close(found.encode(shorter), kept)


def test_the_mask_is_no_item_to_be_scored() -> None:
    found = bert4rec()
    assert found.item.num_embeddings == N_ITEMS + 2
    assert found.item_vectors().shape[0] == N_ITEMS + 1
    assert torch.equal(found.item_vectors(), found.item.weight[:MASK])
    with torch.no_grad():
        found.item.weight[MASK] = 1e6  # would win against every item
        scores = model_scorer(found)(sequences(history(5)))
    assert scores.shape == (1, N_ITEMS + 1)


def test_an_item_may_be_likely_whatever_came_before() -> None:
    found = bert4rec()
    rows = sequences(history(5), history(8))
    with torch.no_grad():
        before = model_scorer(found)(rows)
        found.bias[3] += 2.5
        after = model_scorer(found)(rows)
    torch.testing.assert_close(after[:, 3] - before[:, 3], torch.full((2,), 2.5))
    assert torch.equal(after[:, 4:], before[:, 4:])


def test_the_output_is_transformed_and_normalised() -> None:
    found = hidden(bert4rec(), history(12))
    close(found.mean(-1), torch.zeros(1, 12, dtype=torch.float64))
    # as far as the epsilon of the norm lets it
    torch.testing.assert_close(
        found.std(-1, correction=0), torch.ones(1, 12).double(), rtol=0.05, atol=0
    )
