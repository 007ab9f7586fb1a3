"""The two connections of the Redis bus: a writer and a reader. Neither raises.

While Redis is away, the writer drops commands, and both reconnect after growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from tailrace.buses.local import LocalBus
from tailrace.core.errors import CallerError

try:
    from hiredis import pack_command
    from redis.asyncio import ConnectionPool
    from redis.asyncio.connection import AbstractConnection
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.crc import key_slot
    from redis.exceptions import (
        AskError,
        AuthenticationError,
        ClusterCrossSlotError,
        ClusterDownError,
        ResponseError,
    )
except ModuleNotFoundError as missing:
    raise CallerError(
        "The Redis bus needs the package `redis`. Run: pip install 'tailrace[redis]'"
    ) from missing

MAX_QUEUED_COMMANDS = 10_000
MAX_QUEUED_BYTES = 16 * 1024 * 1024
"""What may wait to be sent while Redis is slow; beyond that the oldest is dropped."""

FLUSH_COMMANDS = 200
FLUSH_BYTES = 256 * 1024
"""About how much is sent at once. More only fills buffers and is slower."""

READ_ENTRIES = 64
BREATH_EVENTS = 500
"""Events that are decoded before the event loop runs other tasks."""

BLOCK_SECONDS = 1.0
"""How long an `XREAD` waits, and how often the places in the streams are checked."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
"""Seconds between tries to reach Redis, at first and at most."""

NOWHERE = b"0-0"
"""The place before any entry."""

Command: TypeAlias = tuple[str | bytes | int, ...]

Pool: TypeAlias = ConnectionPool
"""How to connect to one server."""

Node: TypeAlias = tuple[str, int]
"""Host and port of a node of a Redis Cluster."""

NODE_SECONDS = 1.0
"""How long a node may take to tell where the keys are; then another is asked."""

logger = logging.getLogger("tailrace")


class Health:
    """Logs once that Redis is away, and once that it is back."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._away: set[str] = set()
        self.outages = 0

    def away(self, who: str, why: Exception) -> None:
        """Note that a connection is lost."""
        if not self._away:
            self.outages += 1
            logger.warning(
                "Redis at %s is away (%s); readers read the log until it is back.",
                self._name,
                reason(why),
            )
        self._away.add(who)

    def back(self, who: str) -> None:
        """Note that a connection works."""
        if who in self._away:
            self._away.remove(who)
            if not self._away:
                logger.warning("Redis at %s is back.", self._name)


class Line:
    """A connection that reports each loss. The driver's own reconnects silently."""

    def __init__(self, pool: Pool, patience: float, node: Node | None = None) -> None:
        self._pool = pool
        self._connection = _connection(pool, node)
        self._patience = patience

    @property
    def host(self) -> str:
        """The host that it connects to."""
        return str(getattr(self._connection, "host", ""))

    async def ask(self, commands: Sequence[Command], blocking: float = 0.0) -> list[Any]:
        """Send commands at once; returns their answers, with an exception for each refusal.

        `blocking` is how many more seconds the commands may take, for example an `XREAD`.
        """
        try:
            async with asyncio.timeout(self._patience + blocking):
                await self._connect()
                # The driver packs in Python, which takes longer than the command itself.
                packed = b"".join([pack_command(one) for one in commands])  # type: ignore[arg-type]
                await self._connection.send_packed_command(packed, check_health=False)
                return [await self._answer() for _ in commands]
        except BaseException:
            # Answers may still arrive, and the next call would read them as its own.
            await self.hang_up()
            raise

    async def _connect(self) -> None:
        """Connect, unless it is connected."""
        await self._connection.connect()  # type: ignore[no-untyped-call]

    async def hang_up(self) -> None:
        """Close the connection; the next `ask` opens another connection."""
        with suppress(Exception):
            await self._connection.disconnect(nowait=True)

    async def _answer(self) -> Any:
        try:
            return await self._connection.read_response(disable_decoding=True)
        except ResponseError as refusal:
            return refusal


class ClusterLine(Line):
    """A connection to the node of a Redis Cluster that has a key.

    The node is looked for at each new connection. A node that no longer has the key refuses the
    commands, and the connection is closed.
    """

    def __init__(self, pool: Pool, patience: float, key: bytes, nodes: set[Node]) -> None:
        """`nodes` are the known nodes, which the lines of a bus share."""
        super().__init__(pool, patience)
        self._slot = key_slot(key)
        self._nodes = nodes

    async def ask(self, commands: Sequence[Command], blocking: float = 0.0) -> list[Any]:
        """Send commands to the node that has the key."""
        answers = await super().ask(commands, blocking)
        if any(isinstance(one, ResponseError) for one in answers):
            await self.hang_up()  # the key may have moved to another node
        return answers

    async def _connect(self) -> None:
        if not self._connection.is_connected:
            self._connection = _connection(self._pool, await self._find())
            await super()._connect()

    async def _find(self) -> Node:
        """Ask the nodes in turn, at last the address of the URL."""
        last: Exception | None = None
        for node in (*random.sample(sorted(self._nodes), len(self._nodes)), None):
            line = Line(self._pool, min(self._patience, NODE_SECONDS), node)
            try:
                (slots,) = await line.ask([("CLUSTER", "SLOTS")])
            except Exception as error:  # noqa: BLE001  # ask the next node
                last = error
                continue
            finally:
                await line.hang_up()
            if isinstance(slots, Exception):
                raise slots
            found = {
                (first, end): (host.decode() or line.host, port)
                for first, end, (host, port, *_), *_ in slots
            }
            self._nodes.clear()
            self._nodes.update(found.values())
            for (first, end), place in found.items():
                if first <= self._slot <= end:
                    return place
            last = ConnectionError("the cluster has no node for the key")
        assert last is not None
        raise last


class CommandWriter:
    """Sends commands in the background; drops them while Redis is away."""

    def __init__(self, line: Line, health: Health) -> None:
        self.line = line
        self._health = health
        self._queue: deque[tuple[Command, int]] = deque()
        self._bytes = 0
        self._open = True
        self._filled = asyncio.Event()
        self._sent = asyncio.Event()
        self._sent.set()

    def put(self, command: Command) -> None:
        """Queue a command; never waits."""
        if not self._open:
            return
        size = sum(len(part) for part in command if not isinstance(part, int))
        self._queue.append((command, size))
        self._bytes += size
        while len(self._queue) > MAX_QUEUED_COMMANDS or self._bytes > MAX_QUEUED_BYTES:
            self._bytes -= self._queue.popleft()[1]
        self._filled.set()
        self._sent.clear()

    async def sent(self) -> None:
        """Wait until the queue is empty and sent."""
        await self._sent.wait()

    async def try_to(self, commands: Sequence[Command]) -> Exception | None:
        """Send commands; returns the error if all of them failed."""
        try:
            answers = await self.line.ask(commands)
        except Exception as error:  # noqa: BLE001  # no bus error may stop the runtime
            return error
        refusals = [one for one in answers if isinstance(one, ResponseError)]
        if refusals and len(refusals) < len(answers):
            logger.debug("Redis refused %d of %d: %s", len(refusals), len(answers), refusals[0])
        return refusals[0] if len(refusals) == len(answers) else None

    async def run(self, failure: Exception | None = None) -> None:
        """Send for ever. While Redis is away, drop commands and ping after growing pauses.

        With a `failure`, Redis is away from the start.
        """
        failures = 0
        while True:
            if failure is None:
                await self._filled.wait()
                commands = self._take()
                failure = await self.try_to(commands)
                if failure is not None and not isinstance(failure, ResponseError):
                    # Redis may have restarted while the connection was idle.
                    failure = await self.try_to(commands)
            if failure is None:
                failures = 0
                self._health.back("writer")
                if not self._queue:
                    self._sent.set()
                continue
            self._health.away("writer", failure)
            self._shut()
            reached = False
            while not reached:
                await asyncio.sleep(_pause(failures))
                failures += 1
                reached = await self.try_to([("PING",)]) is None
            self._open = True
            # A Redis that refused the entries is back only when it accepts some.
            if not isinstance(failure, ResponseError):
                self._health.back("writer")
            failure = None

    def _take(self) -> list[Command]:
        taken: list[Command] = []
        room = FLUSH_BYTES
        while self._queue and room > 0 and len(taken) < FLUSH_COMMANDS:
            command, size = self._queue.popleft()
            taken.append(command)
            self._bytes -= size
            room -= size
        if not self._queue:
            self._filled.clear()
        return taken

    def _shut(self) -> None:
        self._open = False
        self._queue.clear()
        self._bytes = 0
        self._filled.clear()
        self._sent.set()


class ShardReader:
    """Waits in one `XREAD` for all shards that have readers in this process.

    A place is the id of the last entry that was read from a shard; `$` would lose entries between
    two calls. After each search for new places the readers read the log: it has the earlier events,
    and the shard brings the later ones.
    """

    def __init__(
        self,
        line: Line,
        health: Health,
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
        """Read for ever. While Redis is away, try again after growing pauses."""
        failures = 0
        while True:
            try:
                if await self._listen():
                    failures = 0
                    self._health.back("reader")
            except Exception as error:  # noqa: BLE001  # no bus error may stop the runtime
                self._waiting = False
                self._places.clear()
                await self.line.hang_up()
                self._health.away("reader", error)
                await asyncio.sleep(_pause(failures))
                failures += 1

    async def _listen(self) -> bool:
        """Read once; returns whether Redis answered."""
        self._wanted.clear()
        wanted = {key for key, shard in self._shards.items() if len(shard)}
        for key in self._places.keys() - wanted:
            del self._places[key]
        if not wanted:
            # Without readers, keep no connection.
            await self.line.hang_up()
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
        for one in answers:
            if isinstance(one, ResponseError):
                raise one
        return answers


def dial(url: str, patience: float) -> tuple[Pool, str]:
    """A connection pool for a URL, and the server's name without the password."""
    # Messages show neither the URL nor the driver's error: both may hold the password.
    failure = CallerError(
        "Not a Redis URL. Write redis://[user:password@]host[:port][/db], rediss://… or unix://path."
    )
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("redis", "rediss", "unix") or "://" not in url:
            raise failure
        pool = ConnectionPool.from_url(
            url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=patience,
        )
        # `Line.ask` has the timeout. The driver's `wait_for` may swallow a cancellation.
        pool.connection_kwargs["socket_timeout"] = None
        _connection(pool)
        port = f":{parts.port}" if parts.port else ""
    except (ValueError, TypeError):
        raise failure from None
    where = parts.path if parts.scheme == "unix" else f"{parts.hostname or 'localhost'}{port}"
    return pool, f"{parts.scheme}://{where}"


def _connection(pool: Pool, node: Node | None = None) -> AbstractConnection:
    """A connection to the server of the URL, or to another node of its cluster."""
    options = dict(pool.connection_kwargs)
    if node is not None:
        options |= {"host": node[0], "port": node[1]}
    made: AbstractConnection = pool.connection_class(**options)
    return made


def _pause(failures: int) -> float:
    longest = min(FIRST_PAUSE * 2.0 ** min(failures, 10), LONGEST_PAUSE)
    return longest * random.uniform(0.5, 1)  # noqa: S311  # spreads the reconnects


def is_away(failure: Exception) -> bool:
    """Whether Redis may answer later. After a refusal, the URL or a setting must change."""
    return not isinstance(failure, AuthenticationError | ResponseError)


def is_in_cluster(failure: Exception) -> bool:
    """Whether a node of a Redis Cluster refuses keys of several slots."""
    return isinstance(failure, AskError | ClusterCrossSlotError | ClusterDownError)


def reason(error: Exception) -> str:
    """An error as a part of a sentence."""
    return str(error).rstrip(".") or type(error).__name__
