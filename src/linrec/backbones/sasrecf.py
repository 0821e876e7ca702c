"""SASRecF: an event is its item and the item's features, projected into one vector."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from linrec.backbones.backbone import gaussian_init
from linrec.backbones.config import SASRecFConfig
from linrec.backbones.sasrec import SASRec
from linrec.data.dataset.item_features import ItemFeatures
from linrec.layers import FeatureEmbedding


class SASRecF(SASRec):
    Config: ClassVar[type[SASRecFConfig]] = SASRecFConfig
    config: SASRecFConfig

    def __init__(self, config: SASRecFConfig, features: ItemFeatures) -> None:
        super().__init__(config, features)
        self.features = FeatureEmbedding(features, config.width)
        self.fuse = nn.Linear((1 + len(features.fields)) * config.width, config.width)
        self.apply(gaussian_init)
        # starts as SASRec: the vector of the item passes unchanged, tied to the output embedding,
        # and the features add little
        with torch.no_grad():
            self.fuse.weight[:, : config.width] = torch.eye(config.width)

    def vectors(self, items: Tensor) -> Tensor:
        features = self.features(items).flatten(-2)
        fused: Tensor = self.fuse(torch.cat([self.embed(items), features], -1))
        return fused
