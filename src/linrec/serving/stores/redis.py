"""Users in Redis, shared by several servers.

A commit is one script, which Redis runs alone: all of it or nothing. What survives a crash of Redis
itself is what Redis was told to keep: `appendonly yes`, `appendfsync always` for every event.
One Redis with or without replicas; not a cluster, whose scripts may not touch all keys of a user.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from linrec.serving.stores.store import Change, Event, Head, StoreError, StoreFullError
from linrec.types import InputError

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError:  # told when a store is opened
    redis = None  # type: ignore[assignment]

SECONDS = 2.0  # to connect, and for an answer
PREFIX = "linrec"

# KEYS: head, events, ids, users. ARGV: user, version read, new version, snapshot or "", keep,
# then time, item and id ("" for none) of each event. Members of the sorted set begin with the
# number of arrival, so that equal times keep that order.
_COMMIT = """
local version = redis.call('HGET', KEYS[1], 'version')
if version == ARGV[3] then return 1 end  -- sent again because the answer was lost
if (version or '') ~= ARGV[2] then return 0 end
local arrived = tonumber(redis.call('HGET', KEYS[1], 'arrived') or '0')
for at = 6, #ARGV, 3 do
  local member = string.format('%016d', arrived) .. ARGV[at + 1]
  redis.call('ZADD', KEYS[2], ARGV[at], member)
  if ARGV[at + 2] ~= '' then
    redis.call('HSET', KEYS[3], ARGV[at + 2], 1)
  end
  arrived = arrived + 1
end
local surplus = redis.call('ZCARD', KEYS[2]) - tonumber(ARGV[5])
if surplus > 0 then
  local popped = redis.call('ZPOPMIN', KEYS[2], surplus)
  for at = 1, #popped, 2 do
    local id = cjson.decode(string.sub(popped[at], 17))[2]
    if id ~= cjson.null and id ~= nil then redis.call('HDEL', KEYS[3], id) end
  end
end
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
redis.call('HSET', KEYS[1], 'version', ARGV[3], 'arrived', arrived, 'snapshot', ARGV[4],
  'events', redis.call('ZCARD', KEYS[2]), 'newest', last[2] or '0')
redis.call('ZADD', KEYS[4], 0, ARGV[1])
return 1
"""

_FORGET = """
redis.call('ZREM', KEYS[4], ARGV[1])
return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
"""


class RedisStore:
    def __init__(self, url: str) -> None:
        if redis is None:
            raise InputError(
                "a Redis store needs the redis package; install it with: pip install linrec[serve]"
            )
        try:
            self._redis: Any = redis.Redis.from_url(
                url,
                socket_timeout=SECONDS,
                socket_connect_timeout=SECONDS,
                retry=Retry(NoBackoff(), 1),  # for a connection that was closed while idle
            )
        except ValueError as error:
            raise InputError(f"{error}; write the store as redis://host:6379/0") from None
        self._commit = self._redis.register_script(_COMMIT)
        self._forget = self._redis.register_script(_FORGET)

    @contextlib.contextmanager
    def _talking(self) -> Iterator[Any]:
        try:
            yield self._redis
        except redis.exceptions.RedisError as error:
            raise _told(error) from error

    def heads(self, users: Sequence[str]) -> list[Head | None]:
        with self._talking() as connection:
            pipe = connection.pipeline(transaction=False)
            for user in users:
                pipe.hmget(_keys(user)[0], "version", "events", "newest", "snapshot")
            return [_head(values) for values in pipe.execute()]

    def known_ids(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[set[str]]:
        wanted = [(user, list(ids)) for user, ids in asked]
        with self._talking() as connection:
            pipe = connection.pipeline(transaction=False)
            for user, ids in wanted:
                pipe.hmget(_keys(user)[2], ids or [""])  # at least one has to be asked for
            found = pipe.execute()
        return [
            {name for name, value in zip(ids, values, strict=False) if value is not None}
            for (_, ids), values in zip(wanted, found, strict=True)
        ]

    def commit(self, changes: Sequence[Change]) -> list[bool]:
        with self._talking() as connection:
            pipe = connection.pipeline(transaction=False)
            for change in changes:
                self._commit(keys=_keys(change.user), args=_arguments(change), client=pipe)
            return [answer == 1 for answer in pipe.execute()]

    def history(self, user: str, newest: int | None = None) -> list[Event]:
        with self._talking() as connection:
            first = 0 if newest is None else -newest
            rows = connection.zrange(_keys(user)[1], first, -1, withscores=True)
        return [_event(member, time) for member, time in rows]

    def forget(self, user: str) -> bool:
        with self._talking():
            return bool(self._forget(keys=_keys(user), args=[user]))

    def users(self, prefix: str, limit: int) -> list[str]:
        low = prefix.encode()
        with self._talking() as connection:
            found = connection.zrangebylex(
                f"{PREFIX}:users", b"[" + low, b"[" + low + b"\xff", start=0, num=limit
            )
        return [user.decode() for user in found]

    def check(self) -> None:
        with self._talking() as connection:
            connection.ping()

    def close(self) -> None:
        self._redis.close()


def _keys(user: str) -> list[str]:
    return [*(f"{PREFIX}:{part}:{user}" for part in ("head", "events", "ids")), f"{PREFIX}:users"]


def _arguments(change: Change) -> list[Any]:
    arguments: list[Any] = [
        change.user, change.version or "", change.new_version, change.snapshot or b"", change.keep
    ]  # fmt: skip
    for event in change.events:
        member = json.dumps([event.item, event.id], ensure_ascii=False)
        arguments += [repr(event.time), member, event.id or ""]
    return arguments


def _head(values: Sequence[bytes | None]) -> Head | None:
    version, events, newest, snapshot = values
    if version is None:
        return None
    return Head(version.decode(), int(events or 0), float(newest or 0), snapshot or None)


def _event(member: bytes, time: float) -> Event:
    item, name = json.loads(member[16:])
    return Event(item, float(time), name)


def _told(error: Exception) -> StoreError:
    if str(error).startswith("OOM"):
        return StoreFullError("the Redis store has no memory left; free some or raise maxmemory")
    return StoreError("the Redis store does not answer; try again later")
