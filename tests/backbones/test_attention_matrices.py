"""The attention of a model can be looked at, layer by layer and head by head."""

from __future__ import annotations

import pytest
import torch

from linrec.backbones import build, model_config
from linrec.data.dataset.item_features import ItemFeatures
from linrec.data.dataset.sequences import Sequences
from linrec.layers import MultiHeadAttention

HISTORIES = Sequences.of([[1, 2, 3, 4, 5], [3, 1]])


@pytest.mark.parametrize("mechanism", ["softmax", "linrec", "linrec-decay"])
@pytest.mark.parametrize("causal", [True, False])
def test_the_matrix_is_what_attention_does(mechanism: str, causal: bool) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(mechanism, 8, 2, causal=causal)
    x, keep = torch.randn(2, 5, 8), torch.arange(5) < torch.tensor([[5], [2]])
    value = attention._split(x)[2]
    out = attention._output(attention.matrix(x, keep) @ value, x)
    torch.testing.assert_close(out[keep], attention(x, keep)[keep])


@pytest.mark.parametrize(("backbone", "layers"), [("sasrec", 2), ("core", 2), ("bert4rec", 2)])
def test_every_layer_is_shown_and_nothing_left_behind(backbone: str, layers: int) -> None:
    config = model_config(backbone=backbone, attention="softmax", width=8, heads=2, inner=8)
    model = build(config, ItemFeatures.ids(5)).eval()
    before = model.encode(HISTORIES)
    found = model.attention_matrices(HISTORIES)
    assert len(found) == layers
    requested = 1 if backbone == "bert4rec" else 0  # the mask behind the history
    for matrix in found:
        assert matrix.shape == (2, 2, 5 + requested, 5 + requested)
        torch.testing.assert_close(matrix[0].sum(-1), torch.ones(2, 5 + requested))
        assert (matrix[1, :, :, 2 + requested :] == 0).all()
    torch.testing.assert_close(model.encode(HISTORIES), before)
    assert not any(part._forward_hooks for part in model.modules())
