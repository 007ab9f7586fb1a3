"""Keeps `SystemExit` and `KeyboardInterrupt` of an agent inside its run.

asyncio ends the event loop, and so the process, when any task raises them. So tasks that an agent
creates run in a coroutine that ends the agent's run instead. A real Ctrl-C still passes.

A callback (`loop.call_soon`, `add_done_callback`) has no such coroutine. Commands run their event
loop with `run_to_end`, which goes on after it. In another process the callback ends the process.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from types import FrameType
from typing import Any, TypeVar

from tailrace.runtime.diagnostics.failures import log_callback_failure

T = TypeVar("T")

EXITS = (SystemExit, KeyboardInterrupt)

OnExit = Callable[[BaseException], None]

_on_exit: ContextVar[OnExit | None] = ContextVar("on_exit", default=None)


def contain(on_exit: OnExit) -> None:
    """Call `on_exit` when a task that is created in this context, from now on, wants to exit."""
    _on_exit.set(on_exit)


def run_to_end(loop: asyncio.AbstractEventLoop, command: asyncio.Task[None]) -> None:
    """Run the loop until the command has ended, even if a callback raises an exit.

    The loop stops at that callback and keeps the others, so it can go on. asyncio logs every other
    error of a callback, and here exits are logged, too. Ctrl-C must have its own signal handler.
    """
    while not command.done():
        try:
            loop.run_until_complete(command)
        except EXITS as error:
            if not command.done():
                log_callback_failure(error)
    command.result()


class AgentExit(RuntimeError):
    """A task of an agent raised `SystemExit` or `KeyboardInterrupt`; its run ends as failed."""


class ExitGuard:
    """Watches one event loop and, in the main thread, Ctrl-C."""

    def __init__(self) -> None:
        self._interrupted = False
        self._loop = asyncio.get_running_loop()
        self._factory_before = self._loop.get_task_factory()
        self._factory: Any = self._make_task
        self._loop.set_task_factory(self._factory)
        self._handler: Callable[[int, FrameType | None], None] | None = None
        self._handler_before: Any = None
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):
                self._handler, self._handler_before = self._note, before
                signal.signal(signal.SIGINT, self._handler)

    def close(self) -> None:
        """Put back what was there before, unless another library has replaced it."""
        if self._loop.get_task_factory() is self._factory:
            self._loop.set_task_factory(self._factory_before)
        if self._handler is not None and signal.getsignal(signal.SIGINT) is self._handler:
            signal.signal(signal.SIGINT, self._handler_before)
            self._handler = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._interrupted = True
        self._handler_before(number, frame)

    def is_from_outside(self, error: BaseException) -> bool:
        """Whether the user pressed Ctrl-C, so that the process has to end."""
        return isinstance(error, KeyboardInterrupt) and self._interrupted

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Any,
        context: Context | None = None,
        **options: Any,
    ) -> Any:
        on_exit = (context.get(_on_exit) if context is not None else None) or _on_exit.get()
        if on_exit is not None and asyncio.iscoroutine(coroutine):
            coroutine = _Contained(coroutine, on_exit, self)
        if context is not None:
            options["context"] = context
        if self._factory_before is not None:
            return self._factory_before(loop, coroutine, **options)
        return asyncio.Task(coroutine, loop=loop, **options)


class _Contained(Coroutine[Any, Any, T]):
    """A coroutine that turns an exit into an ordinary error."""

    def __init__(self, inner: Coroutine[Any, Any, T], on_exit: OnExit, guard: ExitGuard) -> None:
        self._inner = inner
        self._on_exit = on_exit
        self._guard = guard

    def send(self, value: Any) -> Any:
        """Run to the next `await`."""
        try:
            return self._inner.send(value)
        except EXITS as error:
            raise self._contained(error) from error

    def throw(self, *error: Any) -> Any:
        """Raise an exception inside."""
        try:
            return self._inner.throw(*error)
        except EXITS as raised:
            raise self._contained(raised) from raised

    def close(self) -> None:
        """End it early."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # `cr_frame` and the like, for debuggers and anyio

    def _contained(self, error: BaseException) -> BaseException:
        if self._guard.is_from_outside(error):
            return error
        self._on_exit(error)
        # `on_exit` logs it. Else asyncio would log its text, which may hold a secret.
        task = asyncio.current_task()
        assert task is not None  # it runs this coroutine
        task.add_done_callback(lambda done: done.exception())
        return AgentExit(f"A task of the agent raised {type(error).__name__}.")
