"""Functions of tools that block: in a thread of their own, also if they hang or raise."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from tailrace import Context, tool
from tailrace.runtime.diagnostics.failures import ToolTimeout
from tests.runtime.tools.test_tool import output_of


async def test_a_sync_function_runs_in_a_thread_with_the_context_variables() -> None:
    word = contextvars.ContextVar("word", default="no")
    loop, beat = asyncio.get_running_loop(), threading.Event()

    @tool
    def blocking() -> tuple[str, str]:
        loop.call_soon_threadsafe(beat.set)
        assert beat.wait(10)  # set by the event loop, which is free meanwhile
        return word.get(), threading.current_thread().name

    word.set("yes")
    assert await output_of(blocking) == ("yes", "tailrace-tool")


async def test_a_sync_function_that_returns_an_awaitable_is_awaited() -> None:
    async def later() -> int:
        return 3

    @tool
    def wrapped() -> Any:
        return later()

    assert await output_of(wrapped) == 3
    assert await output_of(tool(name="bound")(functools.partial(later))) == 3


async def test_an_interrupt_that_a_thread_raises_is_the_failure_of_its_tool() -> None:
    """A Ctrl-C reaches the main thread only."""

    @tool
    def in_a_thread() -> None:
        raise KeyboardInterrupt

    with pytest.raises(RuntimeError, match="the tool raised KeyboardInterrupt"):
        await output_of(in_a_thread)


async def test_a_thread_that_hangs_is_left_behind() -> None:
    release = threading.Event()

    @tool(timeout=0.02)
    def hanging(ctx: Context) -> None:
        release.wait(60)
        ctx.progress("too late")

    began = time.monotonic()
    with pytest.raises(ToolTimeout):
        await output_of(hanging)
    assert time.monotonic() - began < 30
    release.set()


def test_a_thread_that_hangs_does_not_keep_the_process_from_ending() -> None:
    code = """
import asyncio, threading
from tailrace import Context, tool

@tool(timeout=0.02)
def hanging() -> None:
    threading.Event().wait()

async def main() -> None:
    async for _ in hanging.invoke({}, Context(None)):
        pass

asyncio.run(main())
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert "ToolTimeout: The tool hanging did not finish" in done.stderr
