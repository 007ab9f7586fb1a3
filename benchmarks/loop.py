"""The loop of an agent: what an event costs from the model to the caller, beside frameworks.

Everything happens in this process, without HTTP. The frameworks keep nothing.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks import loop_peers
from benchmarks.harness import Pace, Table, Target, at_least, progress, short
from benchmarks.loop_story import CALL_ID, PROMPT, ask, asks, deltas, has_result, look_up, name_of
from tailrace import Agent, Tailrace, tool
from tailrace.core.events import TextDelta
from tailrace.core.items import Usage
from tailrace.history import history
from tailrace.ports import Request

SIZES = (100, 1_000, 10_000)
ROUNDS = 7
DEPTHS = {"one agent": 1, "three nested agents": 3}

Work = Callable[[int, int], Awaitable[int]]
"""Runs agents so deep, which say so many deltas in all; returns how many its caller saw."""

Times = dict[str, list[float]]


def run(pace: Pace) -> tuple[list[Table], list[Target]]:
    """Both tables, and how far ahead of each framework we are."""
    rounds = pace.amount(full=ROUNDS, quick=3, once=1)
    sizes = pace.amount(full=SIZES, quick=SIZES, once=SIZES[:1])
    peers = {name: make() for name, make in loop_peers.PEERS.items()}
    tables = asyncio.run(_measured(rounds, sizes, peers))
    targets = [
        at_least(f"{table.title}, to {peer}", 1.0, table.least(peer, table.ours))
        for table in tables
        for peer in loop_peers.PEERS
    ]
    return tables, targets


async def _measured(rounds: int, sizes: tuple[int, ...], peers: dict[str, Work]) -> list[Table]:
    tables: list[Table] = []
    with tempfile.TemporaryDirectory() as folder:
        async with _tailrace(Path(folder) / "loop.db") as ours:
            contenders = {"hand-written": by_hand, "tailrace": ours, **peers}
            for shape, depth in DEPTHS.items():
                title = f"loop: {shape}"
                found = {
                    size: await _raced(title, contenders, depth, size, rounds) for size in sizes
                }
                for number, (clock, remark) in enumerate(CLOCKS.items()):
                    times = {size: both[number] for size, both in found.items()}
                    shown = f"{title}, {clock}"
                    tables.append(Table(shown, times, "tailrace", "hand-written", remark=remark))
    return tables


async def _raced(
    title: str, contenders: dict[str, Work], depth: int, size: int, rounds: int
) -> tuple[Times, Times]:
    """The CPU seconds of the process, and those on the wall, by contender."""
    cpu: Times = {name: [] for name in contenders}
    wall: Times = {name: [] for name in contenders}
    for turn in range(-1, rounds):  # the first round warms up
        for name in contenders if turn % 2 == 0 else reversed(contenders):
            progress(f"{title}: {short(size)}, round {turn + 1}, {name}")
            start, start_cpu = time.perf_counter(), time.process_time()
            seen = await contenders[name](depth, size)
            taken, taken_cpu = time.perf_counter() - start, time.process_time() - start_cpu
            if seen != size:
                raise AssertionError(f"{title}: {name} showed {seen} of {size} deltas")
            if turn >= 0:
                cpu[name].append(taken_cpu)
                wall[name].append(taken)
    progress("")
    return cpu, wall


CLOCKS = {
    "CPU": (
        "An agent calls a tool, reads its result and answers. Of three nested agents, the tool is "
        "the next agent, and each says a third of the deltas. The time is the CPU time of the "
        "process for the whole run, with all its threads. It is divided by the deltas that the "
        "caller saw, those of sub-agents included. Every model yields to the loop after each "
        "delta, as a network does. We store each event in SQLite before the caller sees it, and "
        "keep citations, usage and the tree; the others keep nothing. The hand-written loop calls "
        "functions and appends to a list. openai-agents shows the events of sub-agents "
        "by `on_stream`, pydantic-ai by a handler, LangGraph by `subgraphs`."
    ),
    "on the wall": (
        "The same runs by the wall clock: with the waits for SQLite, and with the time of other "
        "processes of the machine."
    ),
}


# --- the least -----------------------------------------------------------------------------------


async def by_hand(depth: int, count: int) -> int:
    """A loop that knows two turns and one tool."""
    seen: list[str] = []

    async def agent(level: int) -> str:
        pieces: list[str] = []
        result = await agent(level - 1) if level > 1 else await look_up("rivers")
        async for delta in deltas(count, depth, level):
            seen.append(delta)
            pieces.append(delta)
        return "".join(pieces) + result[:0]

    await agent(depth)
    return len(seen)


# --- ourselves -----------------------------------------------------------------------------------


class Talker:
    """Calls the tool, then says its deltas: a provider's events, encoded as they arrive."""

    api: Final = "openai_responses"
    name: Final = "talker"

    def __init__(self, count: int, depth: int, level: int) -> None:
        self._sizes = (count, depth, level)

    async def stream(self, request: Request) -> AsyncIterator[list[str]]:
        """One turn."""
        items = history(request.chain, "openai_chat", task_id=request.task_id).items
        count, depth, level = self._sizes
        yield ['{"type":"response.created","response":{"id":"resp_1","output":[]}}']
        if not has_result([item["role"] for item in items]):
            for line in _call(level):
                yield [line]
            return
        pieces: list[str] = []
        yield [_ADDED, _PART]
        async for delta in deltas(count, depth, level):
            pieces.append(delta)
            yield [_DELTA % delta]
        for line in _message_done("".join(pieces)):
            yield [line]

    def cost(self, usage: Usage) -> float | None:  # noqa: ARG002
        """Nothing."""
        return 0.0

    async def close(self) -> None:
        """There is nothing to close."""


_PLACE = '"item_id":"msg_1","output_index":0,"content_index":0'
_ADDED = (
    '{"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message",'
    '"role":"assistant","status":"in_progress","content":[]}}'
)
_PART = (
    '{"type":"response.content_part.added",' + _PLACE + ","
    '"part":{"type":"output_text","text":"","annotations":[]}}'
)
_DELTA = '{"type":"response.output_text.delta",' + _PLACE + ',"delta":"%s"}'


def _message_done(text: str) -> list[str]:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    return _ended({**item, "content": [part]})


def _call(level: int) -> list[str]:
    name, arguments = name_of(level), msgspec.json.encode(asks(level)).decode()
    item = {"id": "fc_1", "type": "function_call", "call_id": CALL_ID, "name": name}
    return [
        _json("output_item.added", output_index=0, item={**item, "arguments": ""}),
        _json("function_call_arguments.delta", item_id="fc_1", output_index=0, delta=arguments),
        *_ended({**item, "arguments": arguments, "status": "completed"}),
    ]


def _ended(item: dict[str, Any]) -> list[str]:
    response = {"id": "resp_1", "status": "completed", "output": [item]}
    return [
        _json("output_item.done", output_index=0, item=item),
        _json("completed", response={**response, "usage": {"input_tokens": 1, "output_tokens": 1}}),
    ]


def _json(kind: str, **fields: Any) -> str:
    return msgspec.json.encode({"type": f"response.{kind}", **fields}).decode()


def agent(depth: int, count: int) -> Agent:
    """The outermost of so many agents."""
    made: Any = tool(look_up)
    for level in range(1, depth + 1):
        found = Agent(f"a{depth}_{count}", model=Talker(count, depth, level), tools=[made])
        made = found.as_tool(ask)
    return found


@asynccontextmanager
async def _tailrace(database: Path) -> AsyncIterator[Work]:
    app = Tailrace([agent(depth, size) for depth in DEPTHS.values() for size in SIZES], database)

    async def work(depth: int, count: int) -> int:
        run = await app.start(f"a{depth}_{count}", PROMPT)
        return sum([type(event) is TextDelta async for event in run.events()])

    async with app.running():
        yield work
