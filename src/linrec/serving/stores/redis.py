"""Users in Redis, shared by several servers.

A commit is one script, which Redis runs alone: all of it or nothing. What survives a crash of Redis
itself depends on its configuration: `appendonly yes`, `appendfsync always` for every event.
One Redis with or without replicas; not a cluster, whose scripts may not touch all keys of a user.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Sequence
from time import sleep, time
from typing import Any
from zlib import crc32

from linrec.serving.stores.store import (
    Change,
    DamagedError,
    Event,
    Forgotten,
    Head,
    Marks,
    StoredSnapshot,
    StoreError,
    StoreFullError,
    new_version,
    user_digest,
)
from linrec.types import InputError

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError:  # reported when a store is opened
    redis = None  # type: ignore[assignment]

SECONDS = 2.0  # to connect, and for a reply
PREFIX = "linrec"
SAFE = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "always"}
ATTEMPTS, CHANGED_MEANWHILE = 50, 2
VACUUM_SECONDS = 600  # for Redis to write its files again

# KEYS: head, events, ids, users, forgotten, written. ARGV: user, version read, new version,
# snapshot or "", keep, digest of the user if forgotten ones are refused, when it was written, then
# time, item and id ("" for none) of each event. Members of the sorted set begin with the number of
# arrival, so that equal times keep that order. A snapshot is a field of the head, named by its
# model: the number of arrivals (16 digits), version (16) and events (16 digits) it was stored with,
# then itself.
_COMMIT = """
local version = redis.call('HGET', KEYS[1], 'version')
if version == ARGV[3] then return 1 end  -- sent again because the reply was lost
if (version or '') ~= ARGV[2] then return 0 end
if ARGV[6] ~= '' and redis.call('SISMEMBER', KEYS[5], ARGV[6]) == 1 then return 0 end
local arrived = tonumber(redis.call('HGET', KEYS[1], 'arrived') or '0')
local newest = tonumber(redis.call('HGET', KEYS[1], 'newest') or '-inf')
local late = false
for at = 8, #ARGV, 3 do
  late = late or (newest ~= nil and tonumber(ARGV[at]) < newest)
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
local kept = redis.call('ZCARD', KEYS[2])
redis.call('HSET', KEYS[1], 'version', ARGV[3], 'arrived', arrived, 'events', kept,
  'newest', last[2] or '-inf')
redis.call('HDEL', KEYS[1], 'snapshot')  -- of an older format
local mine = 's:' .. string.sub(ARGV[4], 1, 16)
local others = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 's:' and (late or field ~= mine) then
    if late then
      redis.call('HDEL', KEYS[1], field)
    else
      local about = string.sub(redis.call('HGET', KEYS[1], field), 1, 32)
      local last = string.sub(about, 17) == ARGV[2] and '1' or '0'  -- stored by the last commit
      table.insert(others, string.sub(about, 1, 16) .. last .. field)
    end
  end
end
if ARGV[4] ~= '' then
  local about = string.format('%016d', arrived) .. ARGV[3] .. string.format('%016d', kept)
  redis.call('HSET', KEYS[1], mine, about .. ARGV[4])
  table.sort(others)
  for at = 1, #others - 1 do redis.call('HDEL', KEYS[1], string.sub(others[at], 18)) end
end
redis.call('ZADD', KEYS[4], 0, ARGV[1])
if #ARGV > 7 or not redis.call('ZSCORE', KEYS[6], ARGV[1]) then
  redis.call('ZADD', KEYS[6], ARGV[7], ARGV[1])
end
return 1
"""

# ARGV: user, digest, and for users who expire the time before which they must have been written
_FORGET = """
if ARGV[3] then
  local written = redis.call('ZSCORE', KEYS[6], ARGV[1])
  if not written or tonumber(written) >= tonumber(ARGV[3]) then return 0 end
end
redis.call('SADD', KEYS[5], ARGV[2])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[6], ARGV[1])
return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
"""

# ARGV: event id, new version, item as JSON or "" to remove the event, time, version read
_REPLACE = """
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[5] then return 2 end
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 0 then return 0 end
local all = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for at = 1, #all, 2 do
  if cjson.decode(string.sub(all[at], 17))[2] == ARGV[1] then
    redis.call('ZREM', KEYS[2], all[at])
    if ARGV[3] == '' then
      redis.call('HDEL', KEYS[3], ARGV[1])
    else
      redis.call('ZADD', KEYS[2], ARGV[4], string.sub(all[at], 1, 16) .. ARGV[3])
    end
    break
  end
end
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 's:' or field == 'snapshot' then
    redis.call('HDEL', KEYS[1], field)
  end
end
redis.call('HSET', KEYS[1], 'version', ARGV[2],
  'events', redis.call('ZCARD', KEYS[2]), 'newest', last[2] or '-inf')
return 1
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
        self._replace = self._redis.register_script(_REPLACE)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            yield self._redis
        except redis.exceptions.RedisError as error:
            raise _store_error(error) from error

    def heads(self, users: Sequence[str]) -> list[Head | None]:
        with self._connected() as connection:
            pipe = connection.pipeline(transaction=False)
            for user in users:
                pipe.hgetall(_keys(user)[0])
            return [_head(values) for values in pipe.execute()]

    def known_ids(self, users: Sequence[tuple[str, Sequence[str]]]) -> list[set[str]]:
        wanted = [(user, list(ids)) for user, ids in users]
        with self._connected() as connection:
            pipe = connection.pipeline(transaction=False)
            for user, ids in wanted:
                pipe.hmget(_keys(user)[2], ids or [""])  # HMGET needs at least one
            rows = pipe.execute()
        return [
            {name for name, value in zip(ids, values, strict=False) if value is not None}
            for (_, ids), values in zip(wanted, rows, strict=True)
        ]

    def commit(self, changes: Sequence[Change]) -> list[bool]:
        with self._connected() as connection:
            salt = self._salt() if any(change.unless_forgotten for change in changes) else b""
            pipe = connection.pipeline(transaction=False)
            for change in changes:
                digest = user_digest(change.user, salt).hex() if change.unless_forgotten else ""
                arguments = _arguments(change, digest)
                self._commit(keys=_keys(change.user), args=arguments, client=pipe)
            return [reply == 1 for reply in pipe.execute()]

    def history(self, user: str, newest: int | None = None) -> list[Event]:
        with self._connected() as connection:
            first = 0 if newest is None else -newest
            rows = connection.zrange(_keys(user)[1], first, -1, withscores=True)
        return [_event(user, member, time) for member, time in rows]

    def oldest(self, user: str, count: int) -> list[float]:
        with self._connected() as connection:
            rows = connection.zrange(_keys(user)[1], 0, count - 1, withscores=True)
        return [float(time) for _, time in rows]

    def forget(self, user: str) -> Forgotten:
        """Redis keeps the bytes in its append-only file or dump until that is written again."""
        with self._connected():
            existed = self._forget(
                keys=_keys(user), args=[user, user_digest(user, self._salt()).hex()]
            )
            return Forgotten(bool(existed), pending=bool(existed))

    def replace_event(
        self, user: str, event_id: str, item: str | None, time: float | None = None
    ) -> Forgotten:
        for _ in range(ATTEMPTS):  # another writer may come between reading and writing
            head = self.heads([user])[0]
            old = [event for event in self.history(user) if event.id == event_id]
            if head is None or not old:
                return Forgotten(False, pending=False)
            new = Event(item or "", old[0].time if time is None else time, event_id)
            member = "" if item is None else _member(user, new)
            given = [event_id, new_version(), member, repr(float(new.time)), head.version]
            with self._connected():
                reply = self._replace(keys=_keys(user), args=given)
            if reply != CHANGED_MEANWHILE:
                return Forgotten(bool(reply), pending=bool(reply))
        raise StoreError("other writers kept changing the user; try again")

    def vacuum(self) -> bool:
        with self._connected() as connection:
            appends = connection.info("persistence").get("aof_enabled")
            running = "aof_rewrite_in_progress" if appends else "rdb_bgsave_in_progress"
            connection.bgrewriteaof() if appends else connection.bgsave()
            for _ in range(VACUUM_SECONDS):
                if not connection.info("persistence")[running]:
                    return True
                sleep(1)
            return False

    def _salt(self) -> bytes:
        key = f"{PREFIX}:salt"
        salt: bytes | None = self._redis.get(key)
        if salt is None:
            self._redis.set(key, secrets.token_bytes(16), nx=True)
            salt = self._redis.get(key)
            assert salt is not None
        return salt

    def users(self, prefix: str, limit: int, after: str = "") -> list[str]:
        low = prefix.encode()
        first = b"(" + after.encode() if after.encode() > low else b"[" + low
        with self._connected() as connection:
            rows = connection.zrangebylex(
                f"{PREFIX}:users", first, b"[" + low + b"\xff", start=0, num=limit
            )
        return [user.decode() for user in rows]

    def expire(self, before: float, limit: int) -> int:
        with self._connected() as connection:
            written = f"{PREFIX}:written"
            if connection.zcard(written) < connection.zcard(f"{PREFIX}:users"):
                # of an older format: their time begins now
                pairs = connection.zscan_iter(f"{PREFIX}:users", count=1000)
                missing = {user: time() for user, _ in pairs}
                connection.zadd(written, missing, nx=True)
            rows = connection.zrangebyscore(written, "-inf", f"({before!r}", start=0, num=limit)
            users = [row.decode() for row in rows]
            salt = self._salt()
            gone = [
                self._forget(
                    keys=_keys(user), args=[user, user_digest(user, salt).hex(), repr(before)]
                )
                for user in users
            ]
        return sum(map(bool, gone))

    def forgotten(self) -> Marks:
        with self._connected() as connection:
            digests = connection.smembers(f"{PREFIX}:forgotten")
            return Marks(self._salt(), frozenset(bytes.fromhex(d.decode()) for d in digests))

    def add_forgotten(self, marks: Marks) -> bool:
        with self._connected() as connection:
            if self._salt() != marks.key:
                if connection.scard(f"{PREFIX}:forgotten"):
                    return False
                connection.set(f"{PREFIX}:salt", marks.key)
            for digest in marks.digests:
                connection.sadd(f"{PREFIX}:forgotten", digest.hex())
        return True

    def problems(self) -> list[str]:
        """Events, or ids of events, of users who are not in the list of users."""
        lost = 0
        with self._connected() as connection:
            for part in ("head", "events", "ids"):
                for key in connection.scan_iter(f"{PREFIX}:{part}:*", count=1000):
                    user = key[len(f"{PREFIX}:{part}:") :]
                    if connection.zscore(f"{PREFIX}:users", user) is None:
                        lost += connection.exists(key)  # it may be forgotten right now
        return [f"{lost} records belong to no user"] if lost else []

    def check(self) -> None:
        with self._connected() as connection:
            connection.set(f"{PREFIX}:probe", 1)  # a full Redis still answers a ping

    def warnings(self) -> list[str]:
        with self._connected() as connection:
            try:
                return [
                    f"Redis has {name} {value}, which can lose stored events; set it to {safe}"
                    for name, safe in SAFE.items()
                    if (value := connection.config_get(name).get(name)) != safe
                ]
            except redis.exceptions.ResponseError:
                return ["the settings of Redis cannot be read; compare them with docs/serving.md"]

    def close(self) -> None:
        self._redis.close()


def _keys(user: str) -> list[str]:
    own = [f"{PREFIX}:{part}:{user}" for part in ("head", "events", "ids")]
    return [*own, f"{PREFIX}:users", f"{PREFIX}:forgotten", f"{PREFIX}:written"]


def _arguments(change: Change, digest: str) -> list[Any]:
    arguments: list[Any] = [
        change.user, change.version or "", change.new_version, change.snapshot or b"", change.keep,
        digest, repr(change.written),
    ]  # fmt: skip
    for event in change.events:
        arguments += [repr(float(event.time)), _member(change.user, event), event.id or ""]
    return arguments


def _member(user: str, event: Event) -> str:
    return json.dumps([event.item, event.id, _checksum(user, event)], ensure_ascii=False)


def _checksum(user: str, event: Event) -> int:
    return crc32(repr((user, event.item, float(event.time), event.id)).encode())


def _head(fields: dict[bytes, bytes]) -> Head | None:
    if not fields:
        return None
    try:
        version, events = fields[b"version"].decode(), int(fields[b"events"])
        snapshots = [
            (int(value[:16]), value[16:32].decode(), int(value[32:48]), value[48:])
            for name, value in fields.items()
            if name.startswith(b"s:")
        ]
        arrived = int(fields[b"arrived"])
        if fields.get(b"snapshot"):  # of an older format: always of the newest version
            snapshots.append((arrived, version, events, fields[b"snapshot"]))
        newest = float(fields[b"newest"])
    except (KeyError, ValueError):
        raise _damaged() from None
    snapshots.sort(key=lambda each: (each[0], each[1] == version), reverse=True)
    stored = (StoredSnapshot(v, kept, arrived - at, what) for at, v, kept, what in snapshots)
    return Head(version, events, newest, tuple(stored))


def _event(user: str, member: bytes, time: float) -> Event:
    try:
        item, name, *checksum = json.loads(member[16:])
        event = Event(item, float(time), name)
    except ValueError:
        raise _damaged() from None
    if checksum and checksum[0] != _checksum(user, event):  # older formats have none
        raise _damaged()
    return event


def _damaged() -> DamagedError:
    return DamagedError(
        "the Redis store has damaged records of this user; see `linrec store check`"
    )


def _store_error(error: Exception) -> StoreError:
    # a pipeline or a script puts words before the message
    if "command not allowed when used memory" in str(error):
        return StoreFullError("the Redis store has no memory left; free some or raise maxmemory")
    return StoreError("the Redis store does not answer; try again later")
