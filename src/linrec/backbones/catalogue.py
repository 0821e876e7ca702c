"""The one list of backbones."""

from __future__ import annotations

from linrec.backbones.backbone import Backbone
from linrec.backbones.config import ModelConfig
from linrec.backbones.sasrec import SASRec
from linrec.types import InputError

BACKBONES: dict[str, type[Backbone]] = {
    "sasrec": SASRec,
}


def build(config: ModelConfig, n_items: int) -> Backbone:
    """A fresh model; its weights follow torch's current seed."""
    if config.backbone not in BACKBONES:
        raise InputError(
            f"unknown backbone {config.backbone!r}; choose from {', '.join(BACKBONES)}"
        )
    return BACKBONES[config.backbone](config, n_items)
