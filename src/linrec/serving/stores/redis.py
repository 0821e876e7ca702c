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
from hashlib import sha1
from time import sleep, time
from typing import Any
from zlib import crc32

from linrec.serving.stores.redis_scripts import COMMIT, FORGET, REPLACE
from linrec.serving.stores.shared import RedisShared
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


class RedisStore(RedisShared):
    shards = 1

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
        self._commit = self._redis.register_script(COMMIT)
        self._forget = self._redis.register_script(FORGET)
        self._replace = self._redis.register_script(REPLACE)

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

    def versions(self, users: Sequence[str]) -> list[str | None]:
        with self._connected() as connection:
            pipe = connection.pipeline(transaction=False)
            for user in users:
                pipe.hget(_keys(user)[0], "version")
            return [None if found is None else found.decode() for found in pipe.execute()]

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
            new = Event(item or "", old[0].time if time is None else time, event_id, old[0].context)
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
    parts = [event.item, event.id, _checksum(user, event)]
    if event.context is not None:
        parts.append(event.context)
    return json.dumps(parts, ensure_ascii=False)


def _checksum(user: str, event: Event) -> int:
    parts = (user, event.item, float(event.time), event.id)
    # without context as before there was any
    return crc32(repr(parts if event.context is None else (*parts, event.context)).encode())


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
        checked = b" ".join(fields[n] for n in (b"version", b"arrived", b"events", b"newest"))
    except (KeyError, ValueError):
        raise _damaged() from None
    checksum = fields.get(b"checksum")  # older formats have none
    if checksum is not None and checksum.decode("ascii", "replace") != sha1(checked).hexdigest():
        raise _damaged()
    snapshots.sort(key=lambda each: (each[0], each[1] == version), reverse=True)
    stored = (StoredSnapshot(v, kept, arrived - at, what) for at, v, kept, what in snapshots)
    return Head(version, events, newest, tuple(stored))


def _event(user: str, member: bytes, time: float) -> Event:
    try:
        item, name, *rest = json.loads(member[16:])
        event = Event(item, float(time), name, rest[1] if len(rest) > 1 else None)
    except ValueError:
        raise _damaged() from None
    if rest and rest[0] != _checksum(user, event):  # older formats have none
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
    if isinstance(error, redis.exceptions.AuthenticationError):
        return StoreError("the Redis store refuses the login; check the password in its address")
    return StoreError("the Redis store does not answer; try again later")
