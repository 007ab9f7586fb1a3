"""Shows a run from a thread: a terminal that does not read stops nothing but its picture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Self

from tailrace.cli.screen import Screen
from tailrace.core.events import AnyEvent
from tailrace.core.fold import State

_endings: list[Future[object]] = []


def all_drawn(seconds: float) -> bool:
    """Wait for the ends of all screens; False if a terminal still does not read."""
    return not wait(_endings, seconds).not_done


class BackgroundScreen:
    """A screen that is drawn in a thread, one call after the other.

    A write to a terminal waits while the terminal does not read (Ctrl-S, a stopped pager). On the
    event loop, this would stop the agent and the server, too.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._thread = ThreadPoolExecutor(1, "screen")

    async def __aenter__(self) -> Self:
        """Begin to draw."""
        await asyncio.wrap_future(self._do(self._screen.__enter__))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Draw what is left. A command that is stopped does not wait for it here."""
        ended = self._do(lambda: self._screen.__exit__(None, None, None))
        _endings.append(ended)
        self._thread.shutdown(wait=False)
        if kind is None:
            await asyncio.shield(asyncio.wrap_future(ended))

    @property
    def state(self) -> State:
        """The run so far. It changes only during `show`."""
        return self._screen.state

    @property
    def code(self) -> int:
        """The exit code of the command: 0 if the run completed."""
        return self._screen.code

    async def show(self, events: Iterable[AnyEvent]) -> None:
        """Show these events."""
        await asyncio.wrap_future(self._do(lambda: self._screen.show(events)))

    def note(self, line: str) -> None:
        """Show a line that is not part of the run, soon."""
        self._do(lambda: self._screen.note(line))

    def prompt(self, line: str) -> None:
        """Show soon what the reader can press now; an empty line takes it away."""
        self._do(lambda: self._screen.prompt(line))

    def _do(self, call: Callable[[], object]) -> Future[object]:
        return self._thread.submit(call)
