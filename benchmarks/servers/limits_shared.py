"""The least that a server on PostgreSQL and Redis can do, in one process.

What gathers while a transaction runs is the next transaction: one `insert`, one row per event.
After the commit the events are published on Redis as one message, and streams send what comes back.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import msgspec
from redis.asyncio import Redis

CHANNEL = "limit"
INSERT = "insert into limit_log (run, line) select * from unnest($1::bigint[], $2::bytea[])"

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(tuple[list[int], list[bytes]]).decode


class SharedLog:
    """The log and the bus of all runs."""

    def __init__(self, db: Any, redis: Redis) -> None:
        self._db = db
        self._redis = redis
        self._numbers = itertools.count()
        self._streams: dict[int, asyncio.Queue[bytes]] = {}
        self._gathered: tuple[list[int], list[bytes]] = ([], [])
        self._writing: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, database: str, bus: str) -> SharedLog:
        """Connect, create the table and begin to listen."""
        db, redis = await asyncpg.connect(database), Redis.from_url(bus)
        await db.execute(
            "create table if not exists limit_log"
            " (number bigserial primary key, run bigint not null, line bytea not null)"
        )
        log = cls(db, redis)
        channel = redis.pubsub(ignore_subscribe_messages=True)
        await channel.subscribe(CHANNEL)
        log._listening = asyncio.create_task(log._listen(channel))
        return log

    def begin(self) -> tuple[int, asyncio.Queue[bytes]]:
        """The number of a new run, and what its stream shall send."""
        run = next(self._numbers)
        self._streams[run] = asyncio.Queue()
        return run, self._streams[run]

    def end(self, run: int) -> None:
        """Forget a run."""
        del self._streams[run]

    def add(self, run: int, line: bytes) -> None:
        """Take an event; it is sent when it is durable and published."""
        runs, lines = self._gathered
        runs.append(run)
        lines.append(line)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while self._gathered[0]:
            taken, self._gathered = self._gathered, ([], [])
            await self._db.execute(INSERT, *taken)
            await self._redis.publish(CHANNEL, encode(taken))
        self._writing = None

    async def _listen(self, channel: Any) -> None:
        async for message in channel.listen():
            for run, line in zip(*decode(message["data"]), strict=True):
                self._streams[run].put_nowait(line)
