"""Training losses: they take tensors, never models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from linrec.losses.config import LossConfig

if TYPE_CHECKING:
    from linrec.losses.catalogue import LOSSES, build_loss, loss_config
    from linrec.losses.items import ItemVectors
    from linrec.losses.loss import Loss
    from linrec.losses.softmax import full_softmax

__all__ = [
    "LOSSES",
    "ItemVectors",
    "Loss",
    "LossConfig",
    "build_loss",
    "full_softmax",
    "loss_config",
]

# imported on first use: the help of `linrec train` shows the settings without torch
_HOMES = {
    "LOSSES": "catalogue",
    "ItemVectors": "items",
    "Loss": "loss",
    "build_loss": "catalogue",
    "full_softmax": "softmax",
    "loss_config": "catalogue",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'linrec.losses' has no attribute {name!r}")
    return getattr(import_module(f"linrec.losses.{_HOMES[name]}"), name)
