"""Cut the stream of an agent after every event, and check that nothing is missing.

    tested = await check_resume(weather, "Is it sunny?")

A client of each wire format loses its connection after every frame and resumes with its cursor,
while the agent works. Together it must have received what a client with one connection receives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from tailrace.core.errors import InvalidCursor
from tailrace.core.sse import SseEvent, SseParser
from tailrace.ports import Model
from tailrace.runtime.agents.functions import AgentFunction
from tailrace.runtime.runs.all_runs import Runs
from tailrace.server.streams.run_stream import run_frames
from tailrace.testing.agent_runs import RUN_SECONDS, AgentRun, Answers, application_of, finished
from tailrace.testing.cursor_kit import cursor_of_event
from tailrace.wire.base import Cursor, Format
from tailrace.wire.formats import FORMATS, format_named


async def check_resume(
    agent: AgentFunction,
    input: Any = None,
    *,
    formats: Iterable[str | Format] | None = None,
    model: Model | Mapping[str, Model] | None = None,
    answer: Answers | Any = msgspec.UNSET,
    options: Any = None,
    timeout: float = RUN_SECONDS,  # noqa: ASYNC109
) -> AgentRun:
    """Run an agent for clients that are cut after every frame; raises `AssertionError`.

    `formats` are the wire formats of the clients, by name or of your own; by default all that have
    cursors. The other options are those of `run_agent`.
    """
    wires = [
        format_named(FORMATS, wire) if isinstance(wire, str) else wire
        for wire in (FORMATS.values() if formats is None else formats)
    ]
    async with application_of(agent, model) as app:
        run = await app.start(next(iter(app.agents)), input, options=options)
        clients = {
            wire.name: asyncio.create_task(_cut_everywhere(app._runs, wire, run.id))
            for wire in wires
            if wire.resumable
        }
        try:
            tested = await finished(run, answer, timeout)
            async with asyncio.timeout(timeout):
                received = {name: await client for name, client in clients.items()}
        finally:
            for client in clients.values():
                client.cancel()
            await asyncio.gather(*clients.values(), return_exceptions=True)
        retried = any(
            node.superseded for task in tested.state.tasks.values() for node in task.items.values()
        )
        for wire in wires:
            # A format that hides lost attempts shows a later client another beginning.
            if wire.name in received and (wire.shows_attempts or not retried):
                _compare(wire.name, received[wire.name], await _whole(app._runs, wire, run.id))
    return tested


async def _cut_everywhere(runs: Runs, wire: Format, run_id: str) -> list[SseEvent]:
    """The events of a client that reconnects after each that has a cursor."""
    received: list[SseEvent] = []
    cursor: Cursor | None = None
    while True:
        cut = await _until_cursor(runs, wire, run_id, cursor, received)
        if cut is None:
            return received
        try:
            cursor = wire.cursor(cut)
        except InvalidCursor as error:
            raise AssertionError(f"{wire.name}: cursor {cut!r} was sent and is refused") from error


async def _until_cursor(
    runs: Runs, wire: Format, run_id: str, cursor: Cursor | None, received: list[SseEvent]
) -> str | None:
    parser = SseParser()
    async with aclosing(run_frames(runs, wire, run_id, cursor)) as pieces:
        async for piece in pieces:
            for event in parser.feed(piece):
                received.append(event)
                if (found := cursor_of_event(event)) is not None:
                    return found
    return None


async def _whole(runs: Runs, wire: Format, run_id: str) -> list[SseEvent]:
    parser = SseParser()
    async with aclosing(run_frames(runs, wire, run_id)) as pieces:
        return [event async for piece in pieces for event in parser.feed(piece)]


def _compare(name: str, received: list[SseEvent], whole: list[SseEvent]) -> None:
    __tracebackhide__ = True
    for place, (got, other) in enumerate(zip(received, whole, strict=False), 1):
        # A parser remembers the last id.
        if (got.event, got.data) != (other.event, other.data):
            raise AssertionError(
                f"{name}: event {place} of a client that was cut is\n{got}\ninstead of\n{other}"
            )
    if len(received) != len(whole):
        raise AssertionError(
            f"{name}: a client that was cut received {len(received)} events of {len(whole)}."
        )
