"""What is known of an event besides its item and time, as vectors: one for each field."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from linrec.data.dataset.item_features import NOTHING, Field


class ContextField(nn.Module):
    """The vectors of the values of one field."""

    def __init__(self, field: Field, width: int) -> None:
        super().__init__()
        self.field = field
        self.value = nn.Embedding(field.size, width, padding_idx=NOTHING)

    def forward(self, codes: Tensor) -> Tensor:
        """[B, N] -> [B, N, width], zero where nothing is known of an event, as of a mask."""
        vectors: Tensor = self.value(codes)
        return vectors


class ContextEmbedding(nn.Module):
    """The context of an event as one vector, which is added to what else is known of it."""

    def __init__(self, fields: Sequence[Field], width: int) -> None:
        super().__init__()
        self.fields = nn.ModuleList(ContextField(field, width) for field in fields)

    def forward(self, codes: Tensor) -> Tensor:
        """[B, N, fields] -> [B, N, width]."""
        first, *others = self.fields
        vectors: Tensor = first(codes[..., 0])
        for place, field in enumerate(others, 1):
            vectors = vectors + field(codes[..., place])
        return vectors
