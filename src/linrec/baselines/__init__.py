"""Models that only count: what a trained model has to beat, and can be served in its place."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from linrec.baselines.config import BaselineConfig

if TYPE_CHECKING:
    from linrec.baselines.baseline import Baseline
    from linrec.baselines.catalogue import BASELINES

__all__ = ["BASELINES", "Baseline", "BaselineConfig"]

# imported on first use: the help of `linrec train` shows the settings without torch
_HOMES = {"BASELINES": "catalogue", "Baseline": "baseline"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'linrec.baselines' has no attribute {name!r}")
    return getattr(import_module(f"linrec.baselines.{_HOMES[name]}"), name)
