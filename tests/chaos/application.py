"""The application under attack: its agents do numbered steps, so that every loss can be seen.

`TAILRACE_CHAOS_DB`, `_BUS`, `_LEASE`, `_TOOLS`, `_WORKERS` and `_BUG` say where it works, how long
a lease is, where tools note that they ran and workers their names, and which bug of `bugs.py` is
planted.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from tailrace.app import Tailrace
from tailrace.core import codec
from tailrace.core.errors import StorageError, StreamTooLarge
from tailrace.core.items import Message, ToolCall
from tailrace.ports import Batch
from tailrace.runtime.agents.functions import NamedAgents, restartable
from tailrace.runtime.event_log import emitter
from tailrace.runtime.event_log.emitter import Taken
from tailrace.runtime.event_log.pipeline import Pipeline
from tailrace.runtime.followers import fanout, follow, tail
from tailrace.runtime.tasks.task import Task
from tailrace.runtime.workers import row_joiner
from tailrace.runtime.workers.worker import Worker
from tailrace.stores.sqlite import batches, fresh_rows
from tests.chaos import bugs, declared
from tests.chaos.checker import SECRET

BURST_EVENTS = 40

MIXED_WORDS = 24
LARGE = " " * batches.SMALL_BYTES
"""With it, a word is a large row."""


async def work(task: Task) -> None:
    """Do the steps that the log does not have: messages, tools that must not run twice, helpers."""
    steps = task.input["steps"]
    for step in range(_done(task), steps):
        # The same script in every process and at any time.
        chance = random.Random(f"{task.input['seed']}/{step}")
        kind = chance.choice(("say", "say", "tool", "helper"))
        if kind == "say":
            await _say(task, step, chance)
            continue
        with task.call(kind) as call:
            for piece in ('{"st', f'ep":{step}', "}"):
                call.arguments(piece)
                await _beat(task, chance)
        if kind == "tool":
            call.start()
            await task.drain()
            _append("TAILRACE_CHAOS_TOOLS", f"{task.task_id} {call.call_id}")
            await _beat(task, chance)
            call.result({"message_content": [_text(SECRET.decode())], "block_list": [_text("ok")]})
        else:
            with call.delegate("helper", {"step": step}) as child:
                await _say(child, step, chance)


async def burst(task: Task) -> None:
    """Say each step at once and at length, so that a reader that stalls soon falls behind."""
    for step in range(_done(task), task.input["steps"]):
        with task.message() as message:
            for place in range(BURST_EVENTS):
                message.text(f"{step}.{place}/{BURST_EVENTS}{' ' * 400}")
        await task.drain()
        await asyncio.sleep(0.05)


async def mixed(task: Task) -> None:
    """Say each step quickly, in rows of which some are large and most are small."""
    for step in range(_done(task), task.input["steps"]):
        chance = random.Random(f"{task.input['seed']}/{step}")
        with task.message() as message:
            for place in range(MIXED_WORDS):
                size = LARGE if chance.random() < 0.3 else " "
                message.text(f"{step}.{place}/{MIXED_WORDS}{size}")
                if chance.random() < 0.8:
                    await task.drain()


def _done(task: Task) -> int:
    """How many steps the log has: messages and calls that count. Steps are done in order."""
    return sum(
        isinstance(node.item, Message | ToolCall)
        and not node.superseded
        and not node.is_open
        and node.item.status == "completed"
        for node in task._sink.node.items.values()
    )


async def _think(task: Task, chance: random.Random) -> None:
    """Think until no event can hold more. Kills and cancels find the item open, and full."""
    with task.reasoning() as thinking, suppress(StreamTooLarge):
        for _ in range(codec.MAX_EVENT_BYTES // 2048 + 4):
            thinking.summary("x" * 2048)
            await _beat(task, chance)


async def _say(task: Task, step: int, chance: random.Random) -> None:
    if chance.random() < 0.1:
        await _think(task, chance)
    length = chance.randint(3, 15)
    with task.message() as message:
        for place in range(length):
            message.text(f"{step}.{place}/{length} ")
            await _beat(task, chance)


async def _beat(task: Task, chance: random.Random) -> None:
    # Mostly without waiting for the log, as agents do: then a kill takes what was not yet durable.
    if chance.random() < 0.3:
        await task.drain()
    await asyncio.sleep(chance.choice((0, 0.002, 0.005, 0.02)))


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _append(variable: str, line: str) -> None:
    """Add a line to the file that a variable names."""
    file = os.open(os.environ[variable], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def _hold_little() -> None:
    """Let servers hold few events of a run, and sockets few bytes: a reader that stalls shows.

    Workers join the rows of a run soon and often, so that kills and readers find them at it.
    """
    for module, name, value in (
        (tail, "RING_EVENTS", 120),
        (fanout, "RING_EVENTS", 100),
        (fanout, "HISTORY_EVENTS", 16),
        (fanout, "LINES_AT_ONCE", 16),
        (follow, "LINES_AT_ONCE", 16),
        (emitter, "BATCHES_TO_JOIN", 8),
        (row_joiner, "LATER_SECONDS", 0.2),
        (fresh_rows, "SWEEP_ROWS", 48),
    ):
        bugs.patch(module, name, value)
    listen = socket.socket.listen

    def listen_small(self: socket.socket, *args: Any) -> None:
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        listen(self, *args)

    bugs.patch(socket.socket, "listen", listen_small)


def _confuse_writers() -> None:
    """Send the store events that it must refuse, beside those that it must take.

    Now and then a batch arrives without its first event before it arrives whole, as over two
    connections. And after the end of a run its writer ends it again.
    """
    honest = Pipeline._append

    async def append(self: Pipeline, batches: list[Batch]) -> tuple[list[Exception | None], bool]:
        torn = [one for one in batches if len(one.publics) > 1 and random.random() < 0.2]
        if torn:
            with suppress(StorageError):
                await self._log.append([_without_first(one) for one in torn])
        answers, away = await honest(self, batches)
        ended = [
            one for one, failure in zip(batches, answers, strict=True) if one.ended and not failure
        ]
        if ended:
            with suppress(StorageError):
                await self._log.append([_once_more(one) for one in ended])
        return answers, away

    write_now = Pipeline._write_now

    def write_now_often(self: Pipeline, taken: list[Taken]) -> float | None:
        if random.random() < 0.3 or any(one.batch.ended for one in taken):
            return None  # `append` above writes them
        return write_now(self, taken)

    bugs.patch(Pipeline, "_append", append)
    bugs.patch(Pipeline, "_write_now", write_now_often)


def _without_first(batch: Batch) -> Batch:
    return msgspec.structs.replace(
        batch,
        first_seq=batch.first_seq + 1,
        publics=batch.publics[1:],
        privates=batch.privates[1:],
        snapshot=None,
    )


def _once_more(batch: Batch) -> Batch:
    number = b'"sequence_number":%d'
    last = batch.last_seq
    again = batch.publics[-1].replace(number % last, number % (last + 1))
    return msgspec.structs.replace(
        batch, first_seq=last + 1, publics=[again], privates=[b""], snapshot=None
    )


def _name_workers() -> None:
    """Note the name and the process of each worker, for those who look at leases."""
    start = Worker.start

    def named(self: Worker) -> None:
        _append("TAILRACE_CHAOS_WORKERS", f"{os.getpid()} {self.name}")
        start(self)

    bugs.patch(Worker, "start", named)


def make() -> Tailrace:
    """The application that the environment describes."""
    lease = float(os.environ["TAILRACE_CHAOS_LEASE"])
    codec.MAX_EVENT_BYTES, codec.MAX_OPEN_BYTES = 32 * 1024, 24 * 1024  # soon full
    _hold_little()
    _confuse_writers()
    _name_workers()
    bugs.plant(os.environ.get("TAILRACE_CHAOS_BUG", ""))
    agents: NamedAgents = {
        "again": restartable(work),
        "once": work,
        "burst": restartable(burst),
        "mixed": restartable(mixed),
        declared.NAME: declared.agent(),
    }
    return Tailrace(
        agents,
        os.environ["TAILRACE_CHAOS_DB"],
        bus=os.environ.get("TAILRACE_CHAOS_BUS") or None,
        lease=timedelta(seconds=lease),
    )


if "TAILRACE_CHAOS_DB" in os.environ:
    app = make()
