"""SASRec: item and position embeddings, Transformer blocks, tied output embeddings."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from linrec.backbones.backbone import Backbone, UserState, gaussian_init, stack_of
from linrec.backbones.config import ModelConfig
from linrec.data.dataset.item_features import ItemFeatures
from linrec.types import PAD


class SASRec(Backbone):
    def __init__(self, config: ModelConfig, features: ItemFeatures) -> None:
        super().__init__(config, features)
        self.item = nn.Embedding(features.n_items + 1, config.width, padding_idx=PAD)
        self.stack = stack_of(config)
        self.apply(gaussian_init)

    def forward_with_state(
        self, items: Tensor, keep: Tensor, state: UserState | None
    ) -> tuple[Tensor, UserState | None]:
        hidden, after = self.stack(self.events(items), keep, state and state[0])
        return hidden, state and (after,)

    def events(self, items: Tensor) -> Tensor:
        """The vectors of the events before positions are added: [B, N, width]."""
        vectors: Tensor = self.item(items)
        return vectors

    def item_vectors(self) -> Tensor:
        return self.item.weight

    def vectors_of(self, items: Tensor) -> Tensor:
        vectors: Tensor = self.item(items)
        return vectors

    def memories(self) -> tuple[Any, ...]:
        return (self.stack,)
