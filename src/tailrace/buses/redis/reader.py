"""Reads the shard streams of the Redis bus. It never raises.

While Redis is away, the reader reconnects after growing pauses.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import ResponseError

from tailrace.buses.local import LocalBus
from tailrace.buses.redis.connections import Command, RedisConnection, RedisHealth, pause

READ_ENTRIES = 64
BREATH_EVENTS = 500
"""Events that are decoded before the event loop runs other tasks."""

BLOCK_SECONDS = 1.0
"""How long an `XREAD` waits, and how often the places in the streams are checked."""

NOWHERE = b"0-0"
"""The place before any entry."""


class ShardReader:
    """Waits in one `XREAD` for all shards that have readers in this process.

    A place is the id of the last entry that was read from a shard; `$` would lose entries between
    two calls. After each search for new places the readers read the log: it has the earlier events,
    and the shard brings later events.
    """

    def __init__(
        self,
        line: RedisConnection,
        health: RedisHealth,
        shards: dict[bytes, LocalBus],
        hear: Callable[[LocalBus, list[bytes]], int],
        *,
        wake_key: bytes,
        generation_key: bytes,
    ) -> None:
        self.line = line
        self._health = health
        self._shards = shards
        self._hear = hear
        self._wake_key = wake_key
        self._wake_place = NOWHERE
        self._generation_key = generation_key
        self._generation = b""
        self._places: dict[bytes, bytes] = {}
        self._checked = 0.0
        self._wanted = asyncio.Event()
        self._waiting = False

    def want(self, key: bytes) -> bool:
        """Note that a shard has a reader; returns whether to interrupt the running `XREAD`."""
        if key in self._places:
            return False
        self._wanted.set()
        interrupt, self._waiting = self._waiting, False
        return interrupt

    async def run(self) -> None:
        """Read forever. While Redis is away, try again after growing pauses."""
        failures = 0
        while True:
            try:
                if await self._listen():
                    failures = 0
                    self._health.back("reader")
            except Exception as error:  # noqa: BLE001  # no bus error may stop the runtime
                self._waiting = False
                self._places.clear()
                await self.line.disconnect()
                self._health.away("reader", error)
                await asyncio.sleep(pause(failures))
                failures += 1

    async def _listen(self) -> bool:
        """Read once; returns whether Redis answered."""
        self._wanted.clear()
        wanted = {key for key, shard in self._shards.items() if len(shard)}
        for key in self._places.keys() - wanted:
            del self._places[key]
        if not wanted:
            # Without readers, keep no connection.
            await self.line.disconnect()
            await self._wanted.wait()
            return False
        await self._check()
        if missing := sorted(wanted - self._places.keys()):
            await self._find_places(missing)
        # A reader may have subscribed meanwhile.
        if not self._wanted.is_set():
            before = dict(self._places)
            full = await self._read()
            if full:
                await self._check_trimmed({key: before[key] for key in full})
        return True

    async def _read(self) -> list[bytes]:
        """Wait for entries and pass them on; returns the shards that may have more."""
        keys = (self._wake_key, *self._places.keys())
        places = (self._wake_place, *self._places.values())
        options = ("COUNT", READ_ENTRIES, "BLOCK", int(BLOCK_SECONDS * 1000))
        self._waiting = True
        (answer,) = await self._ask([("XREAD", *options, "STREAMS", *keys, *places)], BLOCK_SECONDS)
        self._waiting = False
        full = []
        # A mapping in RESP 3, pairs in RESP 2, None after the timeout.
        for key, entries in answer.items() if isinstance(answer, dict) else answer or ():
            if key == self._wake_key:
                self._wake_place = entries[-1][0]
                continue
            self._places[key] = entries[-1][0]
            await self._pass_on(self._shards[key], entries)
            if len(entries) == READ_ENTRIES:
                full.append(key)
        return full

    async def _pass_on(self, shard: LocalBus, entries: list[Any]) -> None:
        decoded = 0
        for _, fields in entries:
            decoded += self._hear(shard, fields)
            if decoded > BREATH_EVENTS:
                decoded = 0
                await asyncio.sleep(0)

    async def _find_places(self, keys: list[bytes]) -> None:
        answers = await self._ask([("XREVRANGE", key, "+", "-", "COUNT", 1) for key in keys])
        for key, newest in zip(keys, answers, strict=True):
            self._places[key] = newest[0][0] if newest else NOWHERE
            self._shards[key].miss()

    async def _check(self) -> None:
        """Check once a second that the places still belong to these streams.

        After a FLUSHALL, new ids may be below the old places, and `XREAD` would never return. A
        changed generation, or an empty stream, shows that.
        """
        now = asyncio.get_running_loop().time()
        if self._places and now - self._checked < BLOCK_SECONDS:
            return
        self._checked = now
        keys = list(self._places)
        ours = secrets.token_hex(8)
        _, generation, *lengths = await self._ask(
            [
                ("SET", self._generation_key, ours, "NX"),
                ("GET", self._generation_key),
                *(("XLEN", key) for key in keys),
            ]
        )
        if generation != self._generation:
            self._generation = generation
            self._wake_place = NOWHERE
            self._places.clear()
            return
        for key, length in zip(keys, lengths, strict=True):
            if length == 0 and self._places[key] != NOWHERE:
                self._places[key] = NOWHERE
                self._shards[key].miss()

    async def _check_trimmed(self, places: dict[bytes, bytes]) -> None:
        """Check whether trimming deleted entries that were not read.

        A read that returns the most entries is behind, and `XREAD` skips deleted entries silently.
        Trimming deletes the oldest first: if the last entry that was read still exists, no later
        entry is missing.
        """
        answers = await self._ask([("XRANGE", key, place, place) for key, place in places.items()])
        for key, entry in zip(places, answers, strict=True):
            if not entry:
                self._shards[key].miss()

    async def _ask(self, commands: Sequence[Command], blocking: float = 0.0) -> list[Any]:
        answers = await self.line.ask(commands, blocking)
        for answer in answers:
            if isinstance(answer, ResponseError):
                raise answer
        return answers
