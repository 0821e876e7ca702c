"""Where users are kept: in memory, in one SQLite file or several, in Redis."""

from pathlib import Path

from linrec.serving.stores.memory import MemoryStore
from linrec.serving.stores.redis import RedisStore
from linrec.serving.stores.sharded import ShardedStore, create_shards
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
from linrec.types import InputError, argument

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
    "ShardedStore",
    "Store",
    "StoreError",
    "StoreFullError",
    "StoredSnapshot",
    "new_version",
    "open_store",
]


def open_store(place: str, shards: int | None = None) -> Store:
    """ "memory", the address of a Redis (redis://host:6379/0), or a path: of an SQLite file, or of
    a folder with several of them.

    shards: how many files a new folder gets, or an existing one must have.
    """
    if place == "memory" or place.startswith(("redis://", "rediss://", "unix://")):
        if shards not in (None, 1):
            raise InputError(
                f"{argument('store_shards')} divides users among SQLite files; leave it out, or "
                f"set {argument('store')} to a path"
            )
        return MemoryStore() if place == "memory" else RedisStore(place)
    return _open_path(Path(place), shards)


def _open_path(path: Path, shards: int | None) -> Store:
    several = shards not in (None, 1)
    if several and path.is_file():
        raise InputError(
            f"{path} is one file, and {argument('store_shards')} is {shards}; leave it out, or "
            "move its users into a new store (linrec store export, then import)"
        )
    if several and not (path.exists() and any(path.iterdir())):
        create_shards(path, shards or 1)
    return ShardedStore(path, shards) if path.is_dir() else SQLiteStore(path)
