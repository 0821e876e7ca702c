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
    from linrec import ops
    from linrec.data.prepare import PrepareOptions, prepare
    from linrec.data.store import SequenceStore
    from linrec.recommender import Recommender, load
    from linrec.types import InputError, Recommendations

__version__ = version("linrec")

__all__ = [
    "InputError",
    "PrepareOptions",
    "Recommendations",
    "Recommender",
    "SequenceStore",
    "load",
    "ops",
    "prepare",
]

# imported when first asked for: `linrec --help` needs neither torch nor polars
_HOMES = {
    "InputError": "linrec.types",
    "PrepareOptions": "linrec.data.prepare",
    "Recommendations": "linrec.types",
    "Recommender": "linrec.recommender",
    "SequenceStore": "linrec.data.store",
    "load": "linrec.recommender",
    "prepare": "linrec.data.prepare",
}


def __getattr__(name: str) -> Any:
    if name == "ops":
        return import_module("linrec.ops")
    if name not in _HOMES:
        raise AttributeError(f"module 'linrec' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
