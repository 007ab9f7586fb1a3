"""The responses of chat clients end when their run waits for people, wherever its worker is lost.

A sub-agent asks for approvals while another sub-agent works. Each client reads its response to the
end, answers what the run waits for, and reads the next response.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tailrace import Agent, Tailrace, tool
from tailrace.core.fold import State
from tailrace.models import Scripted, call, say
from tailrace.server.streams.resume_point import after_state
from tailrace.server.streams.run_stream import RunStream
from tailrace.stores.sqlite.store import SqliteStore
from tailrace.wire import ag_ui, vercel_ui
from tests.effort import SEED, SOAK
from tests.runtime.agents.test_agent_takeover import (
    cut_behind,
    leave,
    running,
    set_free,
    whole_run,
)

SECONDS = 20.0
FORMATS: dict[str, Any] = {"vercel-ui": vercel_ui.FORMAT, "ag-ui": ag_ui.FORMAT}


def family(chance: random.Random) -> Agent:
    """`a` asks `asks` and `works` at the same time; both take some time, in any order."""

    async def some_time() -> None:
        for _ in range(chance.randint(0, 12)):
            await asyncio.sleep(0.002)

    @tool(needs_approval=True)
    async def pay() -> str:
        """Needs an approval."""
        await some_time()
        return "paid"

    @tool(idempotent=True)
    async def look() -> str:
        """May run again."""
        await some_time()
        return "seen"

    @tool
    async def walk() -> str:
        """May not run again."""
        await some_time()
        return "walked"

    asks = Agent(
        "asks",
        model=Scripted([call("pay"), call("look")], [call("pay")], [say("Paid.")]),
        tools=[pay, look],
    )
    works = Agent(
        "works",
        model=Scripted([call("look"), call("walk")], [call("look")], [say("Worked.")]),
        tools=[look, walk],
    )
    turns: list[list[Any]] = [
        [call("asks", prompt="?"), call("works", prompt="?"), call("pay")],
        [say("Done.")],
    ]
    return Agent("a", model=Scripted(*turns), tools=[asks.as_tool(), works.as_tool(), pay])


async def drained(stream: RunStream) -> None:
    """Read a response to its end."""
    try:
        async with asyncio.timeout(SECONDS):
            while await stream.next() is not None:
                pass
    finally:
        await stream.close()


def reopened(name: str, state: State, answered: list[str]) -> tuple[Any, list[bytes]]:
    """What the server begins with when a client answers."""
    if name == "ag-ui":
        return ag_ui.FORMAT.answered(state, answered), []
    return vercel_ui.FORMAT.reopen(state, answered)


async def converse(app: Tailrace, run_id: str, name: str, chance: random.Random) -> int:
    """Be a client of the format until the run has ended; how many responses it read."""
    runs, wire = app._runs, FORMATS[name]
    stream = RunStream(runs, wire, run_id, snapshot=chance.random() < 0.5)
    loop, responses = asyncio.get_running_loop(), 0
    until = loop.time() + 3 * SECONDS
    while loop.time() < until:
        responses += 1
        if chance.random() < 0.2:  # the answer is sent while the response is still open
            reading = asyncio.ensure_future(drained(stream))
            await asyncio.wait([reading], timeout=chance.random() / 20)
        else:
            reading = asyncio.ensure_future(drained(stream))
            await reading
        look = await runs.look(run_id)
        asked = [request for _, request in look.state.requests()]
        if look.info.ended_at is not None:
            await reading
            return responses
        some = chance.sample(asked, chance.randint(min(1, len(asked)), len(asked)))
        for request in some:
            await runs.send(run_id, {"request_id": request.id, "approved": True})
        answered = [request.id for request in some]
        encoder, frames = reopened(name, look.state, answered)
        stream = RunStream(runs, wire, run_id, after_state(look.state, encoder, frames))
        await reading
        await asyncio.sleep(0.01)  # until the worker has read the answer, a response ends at once
    raise AssertionError("the run does not end")


@pytest.mark.parametrize("name", FORMATS)
async def test_a_response_ends_at_a_pause_wherever_the_worker_is_lost(
    tmp_path: Path, name: str
) -> None:
    chance = random.Random(f"{SEED} {name}")
    agent = family(chance)
    whole, result = await whole_run(tmp_path / "whole.db", agent)
    assert result.status == "completed", result.error
    places = range(1, len(whole))
    cuts = cut_behind(whole, places if SOAK else sorted(chance.sample(places, 25)))
    store = SqliteStore(str(tmp_path / "cut.db"))
    for run_id, log in cuts.items():
        await leave(store, run_id, log)
    await set_free(store, list(cuts))
    await store.close()
    async with running(tmp_path / "cut.db", agent) as app:
        works = [converse(app, run_id, name, random.Random(f"{SEED} {run_id}")) for run_id in cuts]
        counts = await asyncio.gather(*works, return_exceptions=True)
        failed = {
            (run_id, len(cuts[run_id])): error
            for run_id, error in zip(cuts, counts, strict=True)
            if isinstance(error, BaseException)
        }
    assert not failed
    assert max(count for count in counts if isinstance(count, int)) > 2  # there were pauses
