"""Serving: an engine that advances users event by event, the stores behind it, HTTP before it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from linrec.serving.settings import EngineSettings

if TYPE_CHECKING:
    from linrec.runs.extending import NewItem
    from linrec.serving.appending import (
        Append,
        Appended,
        FutureEventError,
        LateEventError,
        NewEvent,
    )
    from linrec.serving.engine import Engine
    from linrec.serving.messages import (
        Explanation,
        RecommendRequest,
        RecommendResponse,
        UnknownError,
        UserView,
    )
    from linrec.serving.stores import Store, StoreError, StoreFullError, open_store

__all__ = [
    "Append",
    "Appended",
    "Engine",
    "EngineSettings",
    "Explanation",
    "FutureEventError",
    "LateEventError",
    "NewEvent",
    "NewItem",
    "RecommendRequest",
    "RecommendResponse",
    "Store",
    "StoreError",
    "StoreFullError",
    "UnknownError",
    "UserView",
    "open_store",
]

# imported on first use: the help of `linrec serve` shows the settings without torch
_HOMES = {
    "messages": (
        "RecommendResponse",
        "RecommendRequest",
        "Explanation",
        "UnknownError",
        "UserView",
    ),
    "appending": ("Append", "Appended", "FutureEventError", "LateEventError", "NewEvent"),
    "engine": ("Engine",),
    "stores": ("Store", "StoreError", "StoreFullError", "open_store"),
}


def __getattr__(name: str) -> Any:
    if name == "NewItem":
        return import_module("linrec.runs.extending").NewItem
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"linrec.serving.{home}"), name)
    raise AttributeError(f"module 'linrec.serving' has no attribute {name!r}")
