"""Where users are kept: in memory, in an SQLite file, in Redis."""

from linrec.serving.stores.memory import MemoryStore
from linrec.serving.stores.redis import RedisStore
from linrec.serving.stores.sqlite import SQLiteStore
from linrec.serving.stores.store import (
    Change,
    DamagedError,
    Event,
    Forgotten,
    Head,
    Marks,
    Store,
    StoredSnapshot,
    StoreError,
    StoreFullError,
    new_version,
)

__all__ = [
    "Change",
    "DamagedError",
    "Event",
    "Forgotten",
    "Head",
    "Marks",
    "MemoryStore",
    "RedisStore",
    "SQLiteStore",
    "Store",
    "StoreError",
    "StoreFullError",
    "StoredSnapshot",
    "new_version",
    "open_store",
]


def open_store(place: str) -> Store:
    """ "memory", the address of a Redis (redis://host:6379/0) or the path of an SQLite file."""
    if place == "memory":
        return MemoryStore()
    if place.startswith(("redis://", "rediss://", "unix://")):
        return RedisStore(place)
    return SQLiteStore(place)
