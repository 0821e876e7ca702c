"""What is known about an item, as vectors: one for each feature field."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linrec.data.dataset.item_features import NOTHING, Field, ItemFeatures


class FieldEmbedding(nn.Module):
    """The mean of the vectors of an item's values in one field."""

    codes: Tensor  # [n_items + 1, values], NOTHING after each item's last value

    def __init__(self, field: Field, codes: Tensor, width: int) -> None:
        super().__init__()
        self.field = field
        self.value = nn.Embedding(field.size, width, padding_idx=NOTHING)
        # not part of the weights: rebuilt from the items and the field's vocabulary
        self.register_buffer("codes", codes, persistent=False)

    def forward(self, items: Tensor) -> Tensor:
        """items: [B, N] -> [B, N, width], zero where there is no item."""
        codes = self.codes[items.flatten()]
        if codes.shape[1] == 1:
            vectors: Tensor = self.value(codes[:, 0])
        else:
            vectors = F.embedding_bag(codes, self.value.weight, mode="mean", padding_idx=NOTHING)
        return vectors.view(*items.shape, self.value.embedding_dim)


class FeatureEmbedding(nn.Module):
    """All fields of an item side by side."""

    def __init__(self, features: ItemFeatures, width: int) -> None:
        super().__init__()
        self.fields = nn.ModuleList(
            FieldEmbedding(field, torch.from_numpy(codes), width)
            for field, codes in zip(features.fields, features.codes, strict=True)
        )

    def forward(self, items: Tensor) -> Tensor:
        """items: [B, N] -> [B, N, fields, width]."""
        return torch.stack([field(items) for field in self.fields], -2)


class FieldAttention(nn.Module):
    """Fuses the fields of an item by learned weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.look = nn.Linear(width, width)
        self.judge = nn.Linear(width, 1, bias=False)  # a softmax ignores a constant

    def forward(self, fields: Tensor) -> Tensor:
        """[..., fields, width] -> [..., width]."""
        weight = self.judge(torch.tanh(self.look(fields))).softmax(-2)
        fused: Tensor = (weight * fields).sum(-2)
        return fused
