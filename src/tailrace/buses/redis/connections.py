"""Connections to Redis, or to a node of a Redis Cluster, and what their failures mean."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias
from urllib.parse import urlsplit

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

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
"""Seconds between tries to reach Redis, at first and at most."""

Command: TypeAlias = tuple[str | bytes | int, ...]

Pool: TypeAlias = ConnectionPool
"""How to connect to one server."""

NodeAddress: TypeAlias = tuple[str, int]
"""Host and port of a node of a Redis Cluster."""

NODE_SECONDS = 1.0
"""How long a node may take to answer which node has a key; then another node is asked."""

logger = logging.getLogger("tailrace")


class RedisHealth:
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
                "Redis at %s is away (%s); readers read the log until it is back",
                self._name,
                reason(why),
            )
        self._away.add(who)

    def back(self, who: str) -> None:
        """Note that a connection works."""
        if who in self._away:
            self._away.remove(who)
            if not self._away:
                logger.warning("Redis at %s is back", self._name)


class RedisConnection:
    """A connection that reports each loss. The driver's own reconnects silently."""

    def __init__(self, pool: Pool, patience: float, node: NodeAddress | None = None) -> None:
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
                packed = b"".join([pack_command(command) for command in commands])  # type: ignore[arg-type]
                await self._connection.send_packed_command(packed, check_health=False)
                return [await self._answer() for _ in commands]
        except BaseException:
            # Answers may still arrive, and the next call would read them as its own.
            await self.disconnect()
            raise

    async def _connect(self) -> None:
        """Connect, unless it is connected."""
        await self._connection.connect()  # type: ignore[no-untyped-call]

    async def disconnect(self) -> None:
        """Close the connection; the next `ask` opens another connection."""
        with suppress(Exception):
            await self._connection.disconnect(nowait=True)

    async def _answer(self) -> Any:
        try:
            return await self._connection.read_response(disable_decoding=True)
        except ResponseError as refusal:
            return refusal


class ClusterConnection(RedisConnection):
    """A connection to the node of a Redis Cluster that has a key.

    The node is looked for at each new connection. A node that no longer has the key refuses the
    commands, and the connection is closed.
    """

    def __init__(self, pool: Pool, patience: float, key: bytes, nodes: set[NodeAddress]) -> None:
        """`nodes` are the known nodes, which the lines of a bus share."""
        super().__init__(pool, patience)
        self._slot = key_slot(key)
        self._nodes = nodes

    async def ask(self, commands: Sequence[Command], blocking: float = 0.0) -> list[Any]:
        """Send commands to the node that has the key."""
        answers = await super().ask(commands, blocking)
        if any(isinstance(answer, ResponseError) for answer in answers):
            await self.disconnect()  # the key may have moved to another node
        return answers

    async def _connect(self) -> None:
        if not self._connection.is_connected:
            self._connection = _connection(self._pool, await self._find())
            await super()._connect()

    async def _find(self) -> NodeAddress:
        """Ask the nodes in turn, at last the address of the URL."""
        last: Exception | None = None
        for node in (*random.sample(sorted(self._nodes), len(self._nodes)), None):
            line = RedisConnection(self._pool, min(self._patience, NODE_SECONDS), node)
            try:
                (slots,) = await line.ask([("CLUSTER", "SLOTS")])
            except Exception as error:  # noqa: BLE001  # ask the next node
                last = error
                continue
            finally:
                await line.disconnect()
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
        # `RedisConnection.ask` has the timeout. The driver's `wait_for` may swallow a cancellation.
        pool.connection_kwargs["socket_timeout"] = None
        _connection(pool)
        port = f":{parts.port}" if parts.port else ""
    except (ValueError, TypeError):
        raise failure from None
    where = parts.path if parts.scheme == "unix" else f"{parts.hostname or 'localhost'}{port}"
    return pool, f"{parts.scheme}://{where}"


def _connection(pool: Pool, node: NodeAddress | None = None) -> AbstractConnection:
    """A connection to the server of the URL, or to another node of its cluster."""
    options = dict(pool.connection_kwargs)
    if node is not None:
        options |= {"host": node[0], "port": node[1]}
    made: AbstractConnection = pool.connection_class(**options)
    return made


def pause(failures: int) -> float:
    """Seconds to the next try to reach Redis, after so many failures."""
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
