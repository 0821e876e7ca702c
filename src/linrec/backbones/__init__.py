"""The Transformer recommenders, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from linrec.backbones.config import ModelConfig

if TYPE_CHECKING:
    from linrec.backbones.backbone import Backbone
    from linrec.backbones.catalogue import BACKBONES, build, model_config

__all__ = ["BACKBONES", "Backbone", "ModelConfig", "build", "model_config"]

# imported on first use: the help of `linrec train` shows the settings without torch
_HOMES = {
    "BACKBONES": "catalogue",
    "Backbone": "backbone",
    "build": "catalogue",
    "model_config": "catalogue",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'linrec.backbones' has no attribute {name!r}")
    return getattr(import_module(f"linrec.backbones.{_HOMES[name]}"), name)
