"""The bus between processes: a fixed number of Redis Streams for any number of runs.

    bus = await RedisBus.open("redis://localhost")

A flush writes one entry per run: a hundred events cost as much as one. A process has two
connections: a writer with a bounded queue, and a reader that waits in one `XREAD` for all followed
streams. Redis may lose everything at any time, because events are durable before they are
published. Whenever entries may have been lost, the readers read the log (`get` returns an empty
list at once). While Redis is away they poll the log.

The keys, under one prefix:

    tailrace:bus:0 … :15        the shard streams; the CRC-32 of its id gives a run's shard
    tailrace:bus:generation     missing or changed after a FLUSHALL: old places are invalid then
    tailrace:bus:wake:<process> interrupts this process's `XREAD` when it needs another shard
    tailrace:thread:<id>        the optional mirror, see `mirror.py`

In a Redis Cluster (`?cluster=true`) an `XREAD` is for keys of one slot. So each shard has its own
two connections, to the node that has it, and its own keys: `tailrace:bus:{0}`,
`tailrace:bus:{0}:generation`, `tailrace:bus:{0}:wake:<process>`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from zlib import crc32

from tailrace.buses.local import LocalBus
from tailrace.buses.redis.connections import (
    ClusterConnection,
    Command,
    NodeAddress,
    Pool,
    RedisConnection,
    RedisHealth,
    dial,
    is_away,
    is_in_cluster,
    reason,
)
from tailrace.buses.redis.mirror import RedisMirror
from tailrace.buses.redis.reader import ShardReader
from tailrace.buses.redis.writer import CommandWriter
from tailrace.core.codec import decode_event
from tailrace.core.errors import BusUnavailable, CallerError, MalformedEvent, TailraceError
from tailrace.core.events import Recorded
from tailrace.ports import Subscription
from tailrace.runtime.diagnostics.log_fields import about_run

SHARDS = 16
"""Number of shard streams. All processes that share a Redis must use the same number."""

MAX_ENTRIES = 1000
"""Entries in a shard, about some seconds of traffic. A slower reader reads the log."""

MAX_ENTRY_BYTES = 64 * 1024
"""Most bytes of an entry. A larger event is only announced, and read from the log."""

WAKE_SECONDS = 60
"""How long the key that interrupts a process's `XREAD` outlives the process."""

CHECK_SECONDS = 1.0
"""How long Redis may take to answer `check`."""

logger = logging.getLogger("tailrace")


class ShardConnections:
    """The two connections for some shards: for all of them, or in a cluster for one."""

    def __init__(
        self,
        new_line: Callable[[], RedisConnection],
        health: RedisHealth,
        shards: dict[bytes, LocalBus],
        hear: Callable[[LocalBus, list[bytes]], int],
        stem: str,
        process: str,
    ) -> None:
        self.wake_key = f"{stem}:wake:{process}".encode()
        # A node of a cluster refuses it if the shards are in several slots.
        self.probe: Command = ("MGET", *shards)
        self.new_line = new_line
        self.writer = CommandWriter(new_line(), health)
        self.reader = ShardReader(
            new_line(),
            health,
            shards,
            hear,
            wake_key=self.wake_key,
            generation_key=f"{stem}:generation".encode(),
        )

    def want(self, key: bytes) -> None:
        """Read a shard, and interrupt an `XREAD` that waits for others."""
        if self.reader.want(key):
            self.writer.put(("XADD", self.wake_key, "MAXLEN", 1, "*", "wake", ""))
            self.writer.put(("EXPIRE", self.wake_key, WAKE_SECONDS))

    async def disconnect(self) -> None:
        """Close the connections."""
        await self.writer.line.disconnect()
        await self.reader.line.disconnect()


class RedisBus:
    """Passes new events to every process that shares a Redis."""

    def __init__(
        self,
        pool: Pool,
        name: str,
        *,
        prefix: str = "tailrace",
        shards: int = SHARDS,
        max_entries: int = MAX_ENTRIES,
        patience: float = 5.0,
        mirror: bool = False,
        cluster: bool = False,
    ) -> None:
        self._name = name
        self._prefix = prefix
        self._max_entries = max_entries
        self._process = secrets.token_hex(8)
        # The readers of this process, a local bus per shard. Shards without readers are not read.
        self._shards = [LocalBus() for _ in range(shards)]
        self._complained = False
        self._health = health = RedisHealth(name)
        tag = "{%d}" if cluster else "%d"
        self._keys = [f"{prefix}:bus:{tag % number}".encode() for number in range(shards)]
        by_key = dict(zip(self._keys, self._shards, strict=True))
        nodes: set[NodeAddress] = set()
        self._lanes = [
            ShardConnections(
                partial(ClusterConnection, pool, patience, key, nodes),
                *(health, {key: shard}, self._hear, key.decode(), self._process),
            )
            for key, shard in by_key.items()
            if cluster
        ] or [
            ShardConnections(
                partial(RedisConnection, pool, patience),
                *(health, by_key, self._hear, f"{prefix}:bus", self._process),
            )
        ]
        self.mirror = RedisMirror(self._lanes[0].writer.put, prefix) if mirror else None
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        prefix: str = "tailrace",
        shards: int = SHARDS,
        max_entries: int = MAX_ENTRIES,
        patience: float = 5.0,
        mirror: bool = False,
        cluster: bool = False,
    ) -> RedisBus:
        """Connect to `redis://[user:password@]host[:port][/db]`, `rediss://…` or `unix://path`.

        If Redis is away, a warning is logged, the bus connects later, and readers read the log
        until then. If Redis refuses the login, `BusUnavailable` is raised.

        Redis may take `patience` seconds to answer. With `mirror` (or `?mirror=true` in the URL),
        runs are also written to `{prefix}:thread:{threadId}`. With `cluster` (or `?cluster=true`)
        the server is a node of a Redis Cluster; a mirror is not possible there.
        """
        url, mirrored = _without(url, "mirror")
        url, clustered = _without(url, "cluster")
        cluster = cluster or clustered
        if cluster and (mirror or mirrored):
            raise CallerError(
                "A Redis Cluster cannot have the mirror. Leave out mirror=true, or use one server."
            )
        pool, name = dial(url, patience)
        bus = cls(
            pool,
            name,
            prefix=prefix,
            shards=shards,
            max_entries=max_entries,
            patience=patience,
            mirror=mirror or mirrored,
            cluster=cluster,
        )
        first = bus._lanes[0]
        failure = await first.writer.try_to([first.probe])
        if failure is not None and not is_away(failure):
            await first.disconnect()
            advice = "Correct the URL."
            if is_in_cluster(failure) and not cluster:
                advice = "It is a node of a Redis Cluster: add ?cluster=true to the URL."
            raise BusUnavailable(
                f"Redis at {name} refuses the connection ({reason(failure)}). {advice}"
            ) from failure
        bus._start(failure)
        return bus

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        """Give events to the readers of this process at once, and to others over Redis."""
        if not events or not self._tasks:
            return
        try:
            key = run_id.encode()
            number = crc32(key) % len(self._shards)
            self._shards[number].publish(run_id, events)
            put = self._lanes[number % len(self._lanes)].writer.put
            for piece in _pieces(events):
                put(self._entry(self._keys[number], key, piece))
        except Exception:
            if not self._complained:
                self._complained = True
                logger.exception(
                    "publishing events of run %s on Redis failed; readers get them from the log",
                    run_id,
                    extra=about_run(run_id),
                )

    def subscribe(self, run_id: str) -> Subscription:
        """Subscribe to a run, written by this process or another."""
        number = crc32(run_id.encode()) % len(self._shards)
        subscription = self._shards[number].subscribe(run_id)
        self._lanes[number % len(self._lanes)].want(self._keys[number])
        return subscription

    @property
    def outages(self) -> int:
        """How often Redis went away."""
        return self._health.outages

    async def check(self) -> None:
        """Ask Redis on new connections."""
        await asyncio.gather(*(self._check(lane) for lane in self._lanes))

    async def _check(self, lane: ShardConnections) -> None:
        line = lane.new_line()
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                (answer,) = await line.ask([lane.probe])
            if isinstance(answer, Exception):
                raise answer
        except Exception as error:
            raise BusUnavailable(
                f"Redis at {self._name} does not answer ({reason(error)}). Check the server."
            ) from error
        finally:
            await line.disconnect()

    async def close(self) -> None:
        """Send what waits, for at most a second, and close the connections."""
        tasks, self._tasks = self._tasks, []
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.gather(*(lane.writer.sent() for lane in self._lanes))
        running = set(tasks)
        while running:
            # Repeat: `asyncio.wait_for` in the driver may swallow a cancellation.
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=0.1)
        for lane in self._lanes:
            await lane.disconnect()
        for shard in self._shards:
            await shard.close()

    def _start(self, failure: Exception | None) -> None:
        loop = asyncio.get_running_loop()
        for lane in self._lanes:
            writing, reading = lane.writer.run(failure), lane.reader.run()
            self._tasks.append(loop.create_task(writing, name="tailrace redis writer"))
            self._tasks.append(loop.create_task(reading, name="tailrace redis reader"))

    def _entry(self, key: bytes, run_id: bytes, piece: list[Recorded]) -> Command:
        body = b"\n".join([recorded.public for recorded in piece])
        # An event that holds a line break (a foreign event may) would look like two.
        if len(body) > MAX_ENTRY_BYTES or body.count(b"\n") >= len(piece):
            body = b""
        first = piece[0]
        seq = first.event.sequence_number
        fields: Command = ("run", run_id, "seq", seq, "epoch", first.epoch)
        limit: Command = ("MAXLEN", "~", self._max_entries, "*")
        return ("XADD", key, *limit, *fields, "from", self._process, "events", body)

    def _hear(self, shard: LocalBus, flat: list[bytes]) -> int:
        """Give an entry to the readers; returns how many events were decoded."""
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        run_id = fields.get(b"run", b"").decode(errors="replace")
        if run_id not in shard or fields.get(b"from") == self._process.encode():
            return 0
        try:
            events = _events(fields)
        except (KeyError, ValueError, TailraceError):
            # A foreign entry, or from another version: read the log.
            events = []
        if events:
            shard.publish(run_id, events)
        else:
            shard.miss(run_id)
        return len(events)


def _without(url: str, name: str) -> tuple[str, bool]:
    """The URL for the driver, and whether it asks for the mirror, or for a cluster."""
    head, mark, query = url.partition("?")
    options = query.split("&") if mark else []
    rest = [option for option in options if not option.startswith(f"{name}=")]
    asked = {option.removeprefix(f"{name}=") for option in options} - set(rest)
    if not asked <= {"true", "false"}:
        raise CallerError(f"The Redis URL has an invalid {name} option. Write ?{name}=true.")
    return head + (f"?{'&'.join(rest)}" if rest else ""), "true" in asked


def _pieces(events: list[Recorded]) -> Iterator[list[Recorded]]:
    """Cut published events into entries: one epoch each, and not too many bytes."""
    piece: list[Recorded] = []
    size = 0
    for recorded in events:
        length = len(recorded.public) + 1
        if piece and (size + length > MAX_ENTRY_BYTES or recorded.epoch != piece[0].epoch):
            yield piece
            piece, size = [], 0
        piece.append(recorded)
        size += length
    yield piece


def _events(fields: dict[bytes, bytes]) -> list[Recorded]:
    """The events of an entry; empty if it only announces them."""
    body, epoch = fields[b"events"], int(fields[b"epoch"])
    if not body:
        return []
    events = [Recorded(decode_event(raw), raw, epoch) for raw in body.split(b"\n")]
    if events[0].event.sequence_number != int(fields[b"seq"]):
        raise MalformedEvent("The first event of a bus entry does not have the entry's seq.")
    return events
