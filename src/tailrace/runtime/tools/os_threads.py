"""Runs the function of a tool in a thread. What it shows and raises reaches the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from tailrace.runtime.tools.outputs import Notify


class Raised(msgspec.Struct, frozen=True):
    """How a tool's function failed."""

    error: BaseException


def as_error(error: BaseException) -> BaseException:
    """The exception of a tool as an error that ends nothing but the tool.

    A coroutine cannot raise `StopIteration`. `KeyboardInterrupt` comes from a thread, so it is not
    a Ctrl-C, which reaches the main thread only.
    """
    if isinstance(error, Exception | SystemExit | asyncio.CancelledError) and not isinstance(
        error, StopIteration
    ):
        return error
    failure = RuntimeError(f"the tool raised {type(error).__name__}")
    failure.__cause__ = error
    return failure


def from_any_thread(
    loop: asyncio.AbstractEventLoop, events: asyncio.Queue[Any], note: Notify
) -> None:
    """Show progress of a tool, from its thread or from the event loop."""
    try:
        if asyncio.get_running_loop() is loop:
            events.put_nowait(note)  # at once: an output may follow in the same step
            return
    except RuntimeError:
        pass  # a thread without a loop
    with suppress(RuntimeError):  # the loop is closed: a thread outlived its run
        loop.call_soon_threadsafe(events.put_nowait, note)


async def in_thread(call: Callable[[], Any]) -> Any:
    """Run a blocking function in a thread of its own, with the context variables of the caller.

    Not in a pool: threads cannot be cancelled, and functions that hang would fill it. A daemon
    thread does not keep the process from ending either.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    variables = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if done.done():
            return  # cancelled meanwhile
        if error is None:
            done.set_result(value)
        else:
            # A future refuses StopIteration, so the error travels as a value.
            done.set_result(Raised(error))

    def work() -> None:
        value, error = None, None
        try:
            value = variables.run(call)
        except BaseException as raised:  # noqa: BLE001 - handed to the caller
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name="tailrace-tool", daemon=True).start()
    value = await done
    if isinstance(value, Raised):
        raise as_error(value.error)
    return await value if inspect.isawaitable(value) else value
