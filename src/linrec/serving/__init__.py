"""Serving: an engine that advances users event by event, the stores behind it, HTTP before it."""

from linrec.serving.answers import Answer, Ask, Explanation, UnknownError, UserView
from linrec.serving.appending import Append, Appended, LateEventError, NewEvent
from linrec.serving.engine import Engine
from linrec.serving.settings import EngineSettings
from linrec.serving.stores import Store, StoreError, StoreFullError, open_store

__all__ = [
    "Answer",
    "Append",
    "Appended",
    "Ask",
    "Engine",
    "EngineSettings",
    "Explanation",
    "LateEventError",
    "NewEvent",
    "Store",
    "StoreError",
    "StoreFullError",
    "UnknownError",
    "UserView",
    "open_store",
]
