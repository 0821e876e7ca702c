"""FDSA: one stack over the items, one over their features; both predict the next item."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from linrec.backbones.backbone import Backbone, ClosedState, gaussian_init, stack_of
from linrec.backbones.config import FDSAConfig
from linrec.data.dataset.item_features import ItemFeatures
from linrec.layers import FeatureEmbedding, FieldAttention
from linrec.types import PAD, Events


class FDSA(Backbone):
    Config: ClassVar[type[FDSAConfig]] = FDSAConfig
    config: FDSAConfig

    def __init__(self, config: FDSAConfig, features: ItemFeatures) -> None:
        super().__init__(config, features)
        self.item = nn.Embedding(features.n_items + 1, config.width, padding_idx=PAD)
        self.features = FeatureEmbedding(features, config.width)
        self.fuse_fields = FieldAttention(config.width)
        self.item_stack = stack_of(config, features)
        self.feature_stack = stack_of(config, features)
        self.fuse_stacks = nn.Linear(2 * config.width, config.width)
        self.apply(gaussian_init)
        # as large as the stacks it fuses: the narrow Gaussian would shrink them to a third
        nn.init.normal_(self.fuse_stacks.weight, std=self.fuse_stacks.in_features**-0.5)

    def forward_with_state(
        self, events: Events, state: ClosedState | None
    ) -> tuple[Tensor, ClosedState | None]:
        features = self.fuse_fields(self.features(events.items))
        known = events.gaps, events.context
        by_item, after = self.item_stack(
            self.embed(events.items), events.keep, state and state[0], *known
        )
        by_feature, after_features = self.feature_stack(
            features, events.keep, state and state[1], *known
        )
        hidden: Tensor = self.fuse_stacks(torch.cat([by_item, by_feature], -1))
        return hidden, state and (after, after_features)

    def item_vectors(self) -> Tensor:
        return self.embedding_table()

    def vectors_of(self, items: Tensor) -> Tensor:
        return self.embed(items)

    def memories(self) -> tuple[Any, ...]:
        return (self.item_stack, self.feature_stack)
