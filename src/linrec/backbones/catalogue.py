"""The one list of backbones."""

from __future__ import annotations

from typing import Any

from linrec.backbones.backbone import Backbone
from linrec.backbones.bert4rec import BERT4Rec
from linrec.backbones.config import ModelConfig
from linrec.backbones.core import CORE
from linrec.backbones.fdsa import FDSA
from linrec.backbones.sasrec import SASRec
from linrec.backbones.sasrecf import SASRecF
from linrec.data.dataset.item_features import ItemFeatures
from linrec.settings import choose

BACKBONES: dict[str, type[Backbone]] = {
    "sasrec": SASRec,
    "sasrecf": SASRecF,
    "fdsa": FDSA,
    "bert4rec": BERT4Rec,
    "core": CORE,
}


def configs() -> dict[str, type[ModelConfig]]:
    """The class of settings of each backbone."""
    return {name: backbone.Config for name, backbone in BACKBONES.items()}


def model_config(**settings: Any) -> ModelConfig:
    """The complete settings of `backbone`, which is sasrec if not given."""
    return choose("backbone", configs(), settings)


def build(config: ModelConfig, features: ItemFeatures) -> Backbone:
    """A new model; its weights follow torch's current seed."""
    backbone = BACKBONES[config.backbone]
    assert isinstance(config, backbone.Config), "model_config makes the config of any backbone"
    return backbone(config, features)
