"""Sends the commands of the Redis bus. It never raises.

While Redis is away, commands are dropped, and the writer reconnects after growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from redis.exceptions import ResponseError

from tailrace.buses.redis.connections import Command, RedisConnection, RedisHealth, pause

MAX_QUEUED_COMMANDS = 10_000
MAX_QUEUED_BYTES = 16 * 1024 * 1024
"""What may wait to be sent while Redis is slow; beyond that the oldest is dropped."""

FLUSH_COMMANDS = 200
FLUSH_BYTES = 256 * 1024
"""About how much is sent at once. More only fills buffers and is slower."""

logger = logging.getLogger("tailrace")


class CommandWriter:
    """Sends commands in the background; drops them while Redis is away."""

    def __init__(self, line: RedisConnection, health: RedisHealth) -> None:
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
        refusals = [answer for answer in answers if isinstance(answer, ResponseError)]
        if refusals and len(refusals) < len(answers):
            logger.debug(
                "Redis refused %d of %d commands: %s", len(refusals), len(answers), refusals[0]
            )
        return refusals[0] if len(refusals) == len(answers) else None

    async def run(self, failure: Exception | None = None) -> None:
        """Send forever. While Redis is away, drop commands and ping after growing pauses.

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
                await asyncio.sleep(pause(failures))
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
