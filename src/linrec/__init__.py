"""linrec: recommendations from whole long histories, with linear attention.

data = linrec.prepare("events.csv")
model = linrec.Recommender().fit(data)
model.recommend([["item-1", "item-2"]], k=10)
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linrec import nn, ops
    from linrec.data.dataset.store import SequenceStore
    from linrec.data.preparing.prepare import PrepareOptions, prepare
    from linrec.recommender import Recommender, load
    from linrec.transplant import TransplantReport, replace_attention
    from linrec.tuning.tune import tune
    from linrec.types import InputError, Recommendations

__version__: str

__all__ = [
    "InputError",
    "PrepareOptions",
    "Recommendations",
    "Recommender",
    "SequenceStore",
    "TransplantReport",
    "load",
    "nn",
    "ops",
    "prepare",
    "replace_attention",
    "tune",
]

# imported on first use: the help of `linrec` needs neither torch nor polars
_HOMES = {
    "InputError": "linrec.types",
    "PrepareOptions": "linrec.data.preparing.prepare",
    "Recommendations": "linrec.types",
    "Recommender": "linrec.recommender",
    "SequenceStore": "linrec.data.dataset.store",
    "TransplantReport": "linrec.transplant",
    "load": "linrec.recommender",
    "prepare": "linrec.data.preparing.prepare",
    "replace_attention": "linrec.transplant",
    "tune": "linrec.tuning.tune",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":  # a checkout on the path, not installed, has none
        return version("linrec")
    if name in ("nn", "ops"):
        return import_module(f"linrec.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'linrec' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
