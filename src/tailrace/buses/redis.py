"""The bus between processes: Redis Streams, a fixed number of them, whatever number of runs.

    bus = await RedisBus.open("redis://localhost")

What one flush wrote of one run is one entry: a hundred events cost what one costs. A process has
two connections: one that writes, fed by a bounded queue, and one that waits, in one `XREAD`, for
all the streams that somebody here listens to. Redis may lose all of it at any time: events are
durable before they are published, so whenever something may have passed unheard, the readers are
told to look at the log (`get` returns nothing at once), and while Redis is away they poll it.

The keys, under one prefix:

    tailrace:bus:0 … :15        the shard streams; a run's number is its id's CRC-32
    tailrace:bus:generation     gone or changed after a FLUSHALL: old places mean nothing then
    tailrace:bus:wake:<process> interrupts this process's `XREAD` when it has to listen to more
    tailrace:thread:<id>        the optional mirror, see `redis_mirror`
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator
from contextlib import suppress
from zlib import crc32

from tailrace.buses.local import LocalBus
from tailrace.buses.redis_lines import (
    Command,
    Health,
    Line,
    Pool,
    Reader,
    Writer,
    dial,
    is_away,
    said,
)
from tailrace.buses.redis_mirror import RedisMirror
from tailrace.core.codec import decode_event
from tailrace.core.errors import CallerError, MalformedEvent, TailraceError
from tailrace.core.events import Recorded
from tailrace.ports import Subscription

SHARDS = 16
"""How many streams carry all runs. Every process that shares a Redis has to agree on it."""

MAX_ENTRIES = 1000
"""Entries that a shard keeps, about: some seconds of traffic. Whoever is slower reads the log."""

MAX_ENTRY_BYTES = 64 * 1024
"""What one entry carries. A larger event is only announced: it is read from the log."""

WAKE_SECONDS = 60
"""How long the key that interrupts a process's `XREAD` outlives it."""

CHECK_SECONDS = 1.0
"""How long Redis may take to answer when somebody asks whether it is there."""

logger = logging.getLogger("tailrace")


class BusUnavailable(TailraceError):
    """The bus refuses us, or does not answer when it is asked."""

    code = "bus_unavailable"


class RedisBus:
    """Tells every process that shares a Redis about new events."""

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
    ) -> None:
        self._pool = pool
        self._name = name
        self._prefix = prefix
        self._max_entries = max_entries
        self._process = secrets.token_hex(8)
        # The readers of this process, one bus for each shard: those with readers are listened to.
        self._shards = [LocalBus() for _ in range(shards)]
        self._keys = [f"{prefix}:bus:{number}".encode() for number in range(shards)]
        self._complained = False
        health = Health(name)
        self._writer = Writer(Line(pool, patience), health)
        self.mirror = RedisMirror(self._writer.put, prefix) if mirror else None
        self._wake_key = f"{prefix}:bus:wake:{self._process}".encode()
        self._reader = Reader(
            Line(pool, patience),
            health,
            dict(zip(self._keys, self._shards, strict=True)),
            self._hear,
            wake_key=self._wake_key,
            generation_key=f"{prefix}:bus:generation".encode(),
        )
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
    ) -> RedisBus:
        """Connect to `redis://[user:password@]host[:port][/db]`, `rediss://…` or `unix://path`.

        A Redis that is away is logged and connected later; readers look at the log until then. A
        Redis that refuses us raises `BusUnavailable`.

        `patience` is how many seconds Redis may take to answer. With `mirror` (or `?mirror=true` in
        the URL), runs are also shown in `{prefix}:thread:{threadId}`.
        """
        url, mirrored = _without_mirror(url)
        pool, name = dial(url, patience)
        bus = cls(
            pool,
            name,
            prefix=prefix,
            shards=shards,
            max_entries=max_entries,
            patience=patience,
            mirror=mirror or mirrored,
        )
        failure = await bus._writer.try_to([("PING",)])
        if failure is not None and not is_away(failure):
            await bus._writer.line.hang_up()
            raise BusUnavailable(
                f"Redis at {name} refuses us ({said(failure)}): correct the URL or its settings."
            ) from failure
        bus._start(failure)
        return bus

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        """Give the events to the readers here at once, and to the other processes over Redis."""
        if not events or not self._tasks:
            return
        try:
            key = run_id.encode()
            number = crc32(key) % len(self._shards)
            self._shards[number].publish(run_id, events)
            for piece in _pieces(events):
                self._writer.put(self._entry(self._keys[number], key, piece))
        except Exception:
            if not self._complained:
                self._complained = True
                logger.exception("Publishing events of run %s failed; the log has them.", run_id)

    def subscribe(self, run_id: str) -> Subscription:
        """Listen to one run from now on, in this process and in all others."""
        number = crc32(run_id.encode()) % len(self._shards)
        subscription = self._shards[number].subscribe(run_id)
        if self._reader.want(self._keys[number]):
            self._writer.put(("XADD", self._wake_key, "MAXLEN", 1, "*", "wake", ""))
            self._writer.put(("EXPIRE", self._wake_key, WAKE_SECONDS))
        return subscription

    async def check(self) -> None:
        """Ask Redis for a sign of life, on a connection of its own."""
        line = Line(self._pool, CHECK_SECONDS)
        try:
            await line.ask([("PING",)])
        except Exception as error:
            raise BusUnavailable(
                f"Redis at {self._name} does not answer ({said(error)})."
            ) from error
        finally:
            await line.hang_up()

    async def close(self) -> None:
        """Send what waits, for a second at most, and let go of everything."""
        tasks, self._tasks = self._tasks, []
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._writer.sent()
        running = set(tasks)
        while running:
            # Again and again: `asyncio.wait_for`, somewhere in the driver, may swallow one.
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=0.1)
        await self._writer.line.hang_up()
        await self._reader.line.hang_up()
        for shard in self._shards:
            await shard.close()

    def _start(self, failure: Exception | None) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._writer.run(failure), name="tailrace redis writer"),
            loop.create_task(self._reader.run(), name="tailrace redis reader"),
        ]

    def _entry(self, key: bytes, run_id: bytes, piece: list[Recorded]) -> Command:
        body = b"\n".join([one.public for one in piece])
        # An event that holds a line break itself (a foreign one may) could not be told from two.
        if len(body) > MAX_ENTRY_BYTES or body.count(b"\n") >= len(piece):
            body = b""
        first = piece[0]
        seq = first.event.sequence_number
        fields: Command = ("run", run_id, "seq", seq, "epoch", first.epoch)
        limit: Command = ("MAXLEN", "~", self._max_entries, "*")
        return ("XADD", key, *limit, *fields, "from", self._process, "events", body)

    def _hear(self, shard: LocalBus, flat: list[bytes]) -> int:
        """Pass an entry on; how many events it held that had to be decoded."""
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        run_id = fields.get(b"run", b"").decode(errors="replace")
        if run_id not in shard or fields.get(b"from") == self._process.encode():
            return 0
        try:
            events = _events(fields)
        except (KeyError, ValueError, TailraceError):
            # Not ours, or from another version: whatever it is, the log knows better.
            events = []
        if events:
            shard.publish(run_id, events)
        else:
            shard.miss(run_id)
        return len(events)


def _without_mirror(url: str) -> tuple[str, bool]:
    """The URL as the driver reads it, and whether it asks for the mirror."""
    head, mark, query = url.partition("?")
    options = query.split("&") if mark else []
    rest = [option for option in options if not option.startswith("mirror=")]
    asked = {option.removeprefix("mirror=") for option in options} - set(rest)
    if not asked <= {"true", "false"}:
        raise CallerError("Write ?mirror=true or ?mirror=false in the Redis URL.")
    return head + (f"?{'&'.join(rest)}" if rest else ""), "true" in asked


def _pieces(events: list[Recorded]) -> Iterator[list[Recorded]]:
    """Cut what was published into what one entry holds: one epoch, and not too much."""
    piece: list[Recorded] = []
    size = 0
    for one in events:
        length = len(one.public) + 1
        if piece and (size + length > MAX_ENTRY_BYTES or one.epoch != piece[0].epoch):
            yield piece
            piece, size = [], 0
        piece.append(one)
        size += length
    yield piece


def _events(fields: dict[bytes, bytes]) -> list[Recorded]:
    """The events of an entry; none if it only announces them."""
    body, epoch = fields[b"events"], int(fields[b"epoch"])
    if not body:
        return []
    events = [Recorded(decode_event(raw), raw, epoch) for raw in body.split(b"\n")]
    if events[0].event.sequence_number != int(fields[b"seq"]):
        raise MalformedEvent("An entry whose first event has another number.")
    return events
