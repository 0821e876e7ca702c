"""CORE: a history is a weighted mean of its item vectors, so that both share one space."""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from linrec.backbones.backbone import Backbone, ClosedState, gaussian_init, stack_of
from linrec.backbones.config import COREConfig
from linrec.data.dataset.item_features import ItemFeatures
from linrec.layers import Dropout, WeightedMean
from linrec.types import PAD, Events


class CORE(Backbone):
    """The Transformer only computes the weights; scores are cosines over a temperature."""

    Config: ClassVar[type[COREConfig]] = COREConfig
    config: COREConfig

    def __init__(self, config: COREConfig, features: ItemFeatures) -> None:
        super().__init__(config, features)
        self.item = nn.Embedding(features.n_items + 1, config.width, padding_idx=PAD)
        self.item_dropout = Dropout(config.dropout)
        self.stack = stack_of(config, features)
        self.mean = WeightedMean(config.width)
        self.apply(gaussian_init)

    def forward_with_state(
        self, events: Events, state: ClosedState | None
    ) -> tuple[Tensor, ClosedState | None]:
        vectors = self.item_dropout(self.embed(events.items))
        hidden, after = self.stack(
            vectors, events.keep, state and state[0], events.gaps, events.context
        )
        mean, after_mean = self.mean(vectors, hidden, events.keep, state and state[1])
        hidden = F.normalize(mean, dim=-1) / self.config.temperature
        return hidden, state and (after, after_mean)

    def item_vectors(self) -> Tensor:
        return F.normalize(self.item_dropout(self.embedding_table()), dim=-1)

    def vectors_of(self, items: Tensor) -> Tensor:
        return F.normalize(self.item_dropout(self.embed(items)), dim=-1)

    def memories(self) -> tuple[Any, ...]:
        return (self.stack, self.mean)
