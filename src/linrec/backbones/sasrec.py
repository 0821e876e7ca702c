"""SASRec: item and position embeddings, Transformer blocks, tied output embeddings."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from linrec.backbones.backbone import Backbone, ClosedState, gaussian_init, stack_of
from linrec.backbones.config import ModelConfig
from linrec.data.dataset.item_features import ItemFeatures
from linrec.types import PAD, Events


class SASRec(Backbone):
    def __init__(self, config: ModelConfig, features: ItemFeatures) -> None:
        super().__init__(config, features)
        self.item = nn.Embedding(features.n_items + 1, config.width, padding_idx=PAD)
        self.stack = stack_of(config, features)
        self.apply(gaussian_init)

    def forward_with_state(
        self, events: Events, state: ClosedState | None
    ) -> tuple[Tensor, ClosedState | None]:
        vectors = self.vectors(events.items)
        hidden, after = self.stack(
            vectors, events.keep, state and state[0], events.gaps, events.context
        )
        return hidden, state and (after,)

    def vectors(self, items: Tensor) -> Tensor:
        """The vectors of the events before positions, gaps and context are added: [B, N, width]."""
        return self.embed(items)

    def item_vectors(self) -> Tensor:
        return self.embedding_table()

    def vectors_of(self, items: Tensor) -> Tensor:
        return self.embed(items)

    def memories(self) -> tuple[Any, ...]:
        return (self.stack,)
