"""Features as vectors: the mean of an item's values, and fields fused by what they tell."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from linrec.data.dataset.item_features import FIRST, MISSING, NOTHING, UNKNOWN, Field, ItemFeatures
from linrec.layers import FeatureEmbedding, FieldAttention
from linrec.types import PAD

GENRE = Field("genre", "multi", values=("a", "b", "c"))
YEAR = Field("year", "numeric", bounds=(1990.0,))
TABLE = pl.DataFrame(
    {
        "item": ["p", "q", "r"],
        "genre": [["a", "b", "new"], ["c"], None],
        "year": [1980.0, 2000.0, None],
    }
)


def embedding(*fields: Field, width: int = 4) -> FeatureEmbedding:
    torch.manual_seed(0)
    return FeatureEmbedding(ItemFeatures.of(TABLE, fields), width)


def values(layer: FeatureEmbedding, field: int) -> Tensor:
    """The vector of each code of a field."""
    return layer.fields[field].value.weight.detach()


def test_an_item_is_the_mean_of_its_values() -> None:
    layer = embedding(GENRE, YEAR)
    actual = layer(torch.tensor([[1, 2, 3]]))[0].detach()  # [items, fields, width]
    assert actual.shape == (3, 2, 4)
    genre, year = values(layer, 0), values(layer, 1)
    torch.testing.assert_close(actual[0, 0], genre[[FIRST, FIRST + 1, UNKNOWN]].mean(0))
    torch.testing.assert_close(actual[1, 0], genre[FIRST + 2])
    torch.testing.assert_close(actual[2, 0], genre[MISSING])
    torch.testing.assert_close(actual[:, 1], year[[FIRST, FIRST + 1, MISSING]])


def test_fields_stand_in_the_order_given() -> None:
    items = torch.tensor([[3, 1]])
    layer = embedding(YEAR, GENRE)
    actual = layer(items)
    assert torch.equal(actual[..., 0, :], layer.fields[0](items))
    assert torch.equal(actual[..., 1, :], layer.fields[1](items))


def test_every_id_has_a_vector_of_its_own() -> None:
    layer = FeatureEmbedding(ItemFeatures.ids(3), 4)
    actual = layer(torch.tensor([[1, 2, 3]]))[0, :, 0].detach()
    assert torch.equal(actual, values(layer, 0)[FIRST:])
    assert len(torch.unique(actual, dim=0)) == 3


@pytest.mark.parametrize("fields", [(GENRE,), (YEAR,), (GENRE, YEAR)])
def test_padding_is_zero_and_gets_no_gradient(fields: tuple[Field, ...]) -> None:
    layer = embedding(*fields)
    actual = layer(torch.tensor([[1, PAD, PAD], [2, 3, PAD]]))
    assert (actual[0, 1:] == 0).all()
    assert (actual[1, 2] == 0).all()
    actual.square().sum().backward()
    for field in layer.fields:
        grad = field.value.weight.grad
        assert (grad[NOTHING] == 0).all()
        assert (grad[FIRST] != 0).any()


def test_what_no_item_of_the_batch_has_gets_no_gradient() -> None:
    layer = embedding(GENRE)
    layer(torch.tensor([[2]])).square().sum().backward()
    moved = (layer.fields[0].value.weight.grad != 0).any(1).nonzero()[:, 0]
    assert moved.tolist() == [FIRST + 2]


def test_the_places_behind_the_last_value_count_nothing() -> None:
    """An item with one value has the same vector beside items with one value or with five."""
    long = pl.concat([TABLE, TABLE[:1].with_columns(genre=pl.Series([["a", "b", "c", "x", "y"]]))])
    torch.manual_seed(0)
    wider = FeatureEmbedding(ItemFeatures.of(long, [GENRE]), 4)
    items = torch.tensor([[1, 2, 3]])
    assert torch.equal(values(wider, 0), values(embedding(GENRE), 0))
    torch.testing.assert_close(wider(items), embedding(GENRE)(items))


def test_codes_are_no_weights() -> None:
    """They are made again from the items, so a file of weights does not hold them."""
    assert set(embedding(GENRE, YEAR).state_dict()) == {
        "fields.0.value.weight",
        "fields.1.value.weight",
    }


def test_codes_are_those_of_the_items() -> None:
    layer = embedding(YEAR)
    assert np.array_equal(layer.fields[0].codes.numpy(), YEAR.codes(TABLE))


def test_weights_of_the_fields_sum_to_one() -> None:
    """Unit vectors for fields: what comes out are the weights themselves."""
    torch.manual_seed(0)
    weights = FieldAttention(5)(torch.eye(5).expand(2, 3, 5, 5))
    assert (weights > 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3))
    assert weights.std() > 1e-3  # and they differ


def test_fields_are_weighed_by_tanh_attention() -> None:
    torch.manual_seed(0)
    layer, fields = FieldAttention(4), torch.randn(3, 4)
    look, judge = layer.look, layer.judge
    scores = [judge.weight[0] @ torch.tanh(look.weight @ x + look.bias) for x in fields]
    weight = torch.stack(scores).exp() / torch.stack(scores).exp().sum()
    torch.testing.assert_close(layer(fields), weight @ fields)


def test_one_field_is_returned_unchanged() -> None:
    fields = torch.randn(2, 7, 1, 4)
    assert torch.equal(FieldAttention(4)(fields), fields[..., 0, :])


def test_the_order_of_the_fields_does_not_matter() -> None:
    torch.manual_seed(0)
    layer, fields = FieldAttention(4), torch.randn(2, 3, 5, 4)
    torch.testing.assert_close(layer(fields.flip(-2)), layer(fields))
