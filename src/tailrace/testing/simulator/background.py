"""Simulators in a thread of their own, for tests that are not async and for any client."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

from tailrace.testing.simulator import Simulator

START_SECONDS = 30.0


class BackgroundSimulators:
    """An event loop in a thread; simulators that are started in it end with the block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._started: list[Simulator] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def start(self, *answers: Any, key: str | None = None) -> Simulator:
        """Start a simulator; the arguments are those of `Simulator`."""
        simulator = Simulator(*answers, key=key)
        opening = asyncio.run_coroutine_threadsafe(simulator.__aenter__(), self._loop)
        self._started.append(opening.result(START_SECONDS))
        return simulator

    def __exit__(self, *_: object) -> None:
        for simulator in self._started:
            closing = asyncio.run_coroutine_threadsafe(simulator.__aexit__(), self._loop)
            closing.result(START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
