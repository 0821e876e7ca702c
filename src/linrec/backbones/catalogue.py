"""The one list of backbones."""

from __future__ import annotations

from dataclasses import replace

from linrec.backbones.backbone import Backbone
from linrec.backbones.bert4rec import BERT4Rec
from linrec.backbones.config import OWN_SETTINGS, ModelConfig
from linrec.backbones.core import CORE
from linrec.backbones.fdsa import FDSA
from linrec.backbones.sasrec import SASRec
from linrec.backbones.sasrecf import SASRecF
from linrec.data.dataset.item_features import ItemFeatures
from linrec.types import InputError

BACKBONES: dict[str, type[Backbone]] = {
    "sasrec": SASRec,
    "sasrecf": SASRecF,
    "fdsa": FDSA,
    "bert4rec": BERT4Rec,
    "core": CORE,
}


def build(config: ModelConfig, features: ItemFeatures) -> Backbone:
    """A fresh model; its weights follow torch's current seed."""
    return find(config.backbone)(completed(config), features)


def completed(config: ModelConfig) -> ModelConfig:
    """What was left open filled in by the backbone; what it has no use for refused."""
    backbone = find(config.backbone)
    objective = config.objective or backbone.objectives[0]
    if objective not in backbone.objectives:
        raise InputError(
            f"{config.backbone} cannot be trained on {objective}; choose --objective "
            f"{' or '.join(backbone.objectives)}"
        )
    own = backbone.own_settings(objective)
    given = {name: getattr(config, name) for name in OWN_SETTINGS}
    for name, value in given.items():
        if value is not None and name not in own:
            raise InputError(_of_no_use(name, config.backbone, objective))
    filled = {name: own[name] if given[name] is None else given[name] for name in own}
    return replace(config, objective=objective, **filled)


def find(name: str) -> type[Backbone]:
    if name not in BACKBONES:
        raise InputError(f"unknown backbone {name!r}; choose from {', '.join(BACKBONES)}")
    return BACKBONES[name]


def _of_no_use(setting: str, backbone: str, objective: str) -> str:
    users = [
        f"{name} on {other}" if name == backbone else name
        for name, found in BACKBONES.items()
        for other in found.objectives[:1]
        if setting in found.own_settings(other)
    ]
    flag = setting.replace("_", "-")
    return (
        f"{backbone} trained on {objective} has no use for {setting}; leave --{flag} out, or "
        f"choose {' or '.join(users)}"
    )
