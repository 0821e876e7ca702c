"""Events as vectors: what was chosen, and how far from the oldest event seen."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from linrec.types import PAD


class EventEmbedding(nn.Module):
    """Item embedding plus position embedding, normalised, with dropout.

    Positions count from the oldest event and are clamped at the last learned one, so that a
    history of any length has an encoding.
    """

    def __init__(self, n_items: int, width: int, positions: int, dropout: float) -> None:
        super().__init__()
        self.item = nn.Embedding(n_items + 1, width, padding_idx=PAD)
        self.position = nn.Embedding(positions, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, items: Tensor) -> Tensor:
        """items: [B, N] -> [B, N, width]."""
        place = torch.arange(items.shape[1], device=items.device)
        place = place.clamp(max=self.position.num_embeddings - 1)
        events: Tensor = self.norm(self.item(items) + self.position(place))
        dropped: Tensor = self.dropout(events)
        return dropped
