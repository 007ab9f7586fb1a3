"""Calls a function when a stop signal arrives, before the server handles the signal.

A server such as uvicorn waits for open streams before it sends the lifespan's shutdown event. The
application has to learn of the signal earlier, so that it can end its streams.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def on_stop_signal(call: Callable[[], object]) -> Iterator[None]:
    """Call `call` when a stop signal arrives, and then the handler that was installed before.

    Does nothing outside the main thread, and nothing for a signal without a handler: its default
    action still ends the process or raises `KeyboardInterrupt`.
    """
    before: dict[signal.Signals, Any] = {}
    ours: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler) and handler is not signal.default_int_handler:
                before[number] = handler
                ours[number] = _both(handler, call)
                signal.signal(number, ours[number])
    try:
        yield
    finally:
        for number, replaced in before.items():
            if signal.getsignal(number) is ours[number]:
                with suppress(ValueError):  # another thread by now
                    signal.signal(number, replaced)


def _both(handler: Any, call: Callable[[], object]) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        call()
        handler(number, frame)

    return handle
