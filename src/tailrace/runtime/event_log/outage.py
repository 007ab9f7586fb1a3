"""Logs when the store goes away and when it is back.

Every call of a process passes `watched`, so the first call that fails starts an outage. The store
is then checked until it answers. A long outage is two log lines, however many calls fail. An error
other than `StorageBusy`, such as of a damaged row, starts an outage only if the check fails, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any, cast

from tailrace.core.errors import StorageBusy, StorageError, StorageFull, TailraceError
from tailrace.ports import Batch, Store
from tailrace.ports.store import AppendNow, append_now_of
from tailrace.runtime.event_log.store_retry import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    did_not_answer,
    limit_of_wait,
    passing,
    wait_counts,
)

SLOW_SECONDS = 3.0
"""A slower call starts an outage: the store may hang."""

QUIET_SECONDS = 60.0
"""The shortest time between two log lines about a store that went away."""

CHECK_SECONDS = 2.0
"""How often a store that is away is checked, and how long a check may take."""

FULL_SECONDS = 10.0
"""How long a store without room for events counts as full, unless it takes events before."""

logger = logging.getLogger("tailrace")

_CALLS = frozenset(name for name in dir(Store) if not name.startswith("_")) - {"close"}
_EVENTS = ("append", "create")
"""The calls that write events. Others may fit into a full disk: they change what is there."""


class Outage:
    """The outages of one store, as this process sees them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._failed = 0
        self._is_on = False
        self.count = 0
        """How often the store went away."""
        self._stopped = False
        self._logged_at = -QUIET_SECONDS
        self.full_at: float | None = None
        """When events last did not fit into the store, if none were written since."""

    @property
    def is_full(self) -> bool:
        """Whether events did not fit into the store a moment ago, and none were written since.

        A check of the store writes so little that it may fit all the same.
        """
        return self.full_at is not None and time.monotonic() - self.full_at < FULL_SECONDS

    @property
    def is_on(self) -> bool:
        """Whether the store is away."""
        return self._is_on

    def begin(self, why: str, *, is_certain: bool = True) -> None:
        """Start an outage, from any thread: a call failed, or takes too long."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._begin, why, is_certain)

    def _begin(self, why: str, is_certain: bool) -> None:
        self._failed += 1
        if self._task is None and not self._stopped:
            watch = self._watch(why, is_certain)
            self._task = self._loop.create_task(watch, name="store's outage")

    async def stop(self) -> None:
        """Stop the checks."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task, self._is_on = None, False

    async def _watch(self, why: str, is_certain: bool) -> None:
        if is_certain or not await self._answers():
            self.count += 1
            self._is_on = True
            await self._wait(why)
        self._failed = 0
        self._task, self._is_on = None, False

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._store.check()
        except (TailraceError, TimeoutError):
            return False
        return True

    async def _wait(self, why: str) -> None:
        """Wait until the store answers; log its absence."""
        began, pause, logged = time.monotonic(), FIRST_PAUSE, False
        while True:
            now = time.monotonic()
            if not logged and now - self._logged_at >= QUIET_SECONDS:
                logged, self._logged_at = True, now
                logger.warning("the store is away: %s", why)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            if await self._answers():
                break
        if logged:
            away = time.monotonic() - began
            logger.warning("the store is back after %.1f s; %d calls failed", away, self._failed)


def watched(store: Store, outage: Outage) -> Store:
    """The same store. Its failures start an outage."""
    return cast(Store, _Watched(store, outage))


class _Watched:
    """Passes every call on, within the caller's limit (`store_retry.within`).

    Appends have no limit: a pipeline writes for many callers and has its own patience.
    """

    def __init__(self, store: Store, outage: Outage) -> None:
        self._store = store
        self._outage = outage

    @property
    def append_now(self) -> AppendNow | None:
        """The store's own, if it has one. `append` is used after each failure, and reports it."""
        append_now = append_now_of(self._store)
        if append_now is None:
            return None

        def call(batches: list[Batch]) -> list[None] | None:
            written = append_now(batches)
            if written is not None:
                self._outage.full_at = None
            return written

        return call

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in _CALLS:
            return method
        outage, begin = self._outage, self._outage.begin
        hangs = f"it has not answered `{name}` for {SLOW_SECONDS:g} s."

        async def call(*args: Any, **options: Any) -> Any:
            slow = asyncio.get_running_loop().call_later(SLOW_SECONDS, begin, hangs)
            limit = None if name == "append" else limit_of_wait()
            try:
                if limit is None:
                    found = await method(*args, **options)
                else:
                    with wait_counts():
                        async with asyncio.timeout(limit) as timeout:
                            found = await method(*args, **options)
            except TimeoutError as error:
                if limit is None or not timeout.expired():
                    raise
                raise did_not_answer(limit) from error
            except StorageError as error:
                if isinstance(error, StorageFull):
                    outage.full_at = time.monotonic()
                if passing(error):
                    begin(str(error), is_certain=isinstance(error, StorageBusy))
                raise
            finally:
                slow.cancel()
            if name in _EVENTS:
                outage.full_at = None
            return found

        # The next call finds it without `__getattr__`.
        setattr(self, name, call)
        return call
