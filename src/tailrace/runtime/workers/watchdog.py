"""A thread that keeps leases alive while an agent blocks the event loop.

Agents share one event loop. An agent that blocks it, for example by `time.sleep`, also stops the
task that renews the leases. This thread notices, logs which agent blocks, and renews meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable

from tailrace.core.errors import TailraceError
from tailrace.runtime.diagnostics.log_fields import about_run

BLOCKED_SECONDS = 1.0
"""How long the event loop may not respond before it counts as blocked."""

logger = logging.getLogger("tailrace")


class Watchdog:
    """Watches the running event loop from a thread.

    While the loop is blocked, it calls `renew` every `every` seconds on an event loop of its own.
    `agent_of` names the agent that a task belongs to.
    """

    def __init__(
        self,
        renew: Callable[[], Awaitable[object]],
        agent_of: Callable[[asyncio.Task[object] | None], str | None],
        *,
        every: float,
    ) -> None:
        self._renew = renew
        self._agent_of = agent_of
        self._every = every
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tailrace-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread soon, without waiting for it."""
        self._stopping.set()

    def _watch(self) -> None:
        pause = min(BLOCKED_SECONDS, self._every)
        while not self._stopping.wait(pause):
            answered, begun = threading.Event(), time.monotonic()
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # the loop is closed
                return
            if not answered.wait(pause):
                self._blocked(answered, begun)

    def _blocked(self, answered: threading.Event, begun: float) -> None:
        # Read from another thread: the task may change between the two lines, so this is a guess.
        name = self._agent_of(asyncio.current_task(self._loop))
        logger.warning(
            "%s blocks the event loop at %s; use `await asyncio.to_thread(...)` for blocking code",
            f"agent {name}" if name is not None else "a task",
            self._place(),
            extra=about_run(agent=name or ""),
        )
        while not self._stopping.is_set():
            try:
                asyncio.run(self._call())
            except TailraceError as error:
                logger.warning("leases were not renewed while the event loop is blocked: %s", error)
            if answered.wait(self._every):
                seconds = time.monotonic() - begun
                logger.warning("the event loop was blocked for %.1f s", seconds)
                return

    async def _call(self) -> None:
        await self._renew()

    def _place(self) -> str:
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001  # documented
        if frame is None:
            return "an unknown place"
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"
