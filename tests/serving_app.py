"""The application that `tests.serving` serves."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from examples.research import editor
from tailrace.app import Tailrace
from tailrace.core.closing import closing
from tailrace.core.events import TaskAttempt
from tailrace.history import history
from tailrace.runtime.agent_functions import AgentFunction
from tailrace.runtime.task import Task
from tests import written_agent


async def broken(task: Task) -> None:
    with task.message() as message:
        message.text("Half an ans")
        await task.drain()
        raise RuntimeError("the secret password is hunter2")


async def endless(task: Task) -> None:
    with task.message() as message:
        while True:
            message.text("tick ")
            await asyncio.sleep(0.02)


async def recovered(task: Task) -> None:
    """What a worker writes that takes over from one that was lost in the middle of a message."""
    lost = task.message().__enter__()
    lost.text("Half an ans")
    for event in closing(task.node):
        task.emit(event)
    ident = task.node.items[0].id
    task.emit(
        TaskAttempt(task_id=task.task_id, attempt=2, reason="worker_lost", superseded=[ident])
    )
    with task.message() as message:
        message.text("A whole answer.")


async def remembers(task: Task) -> None:
    """Say what was asked along the conversation; ask the page's own tool when asked to add."""
    roots = [state.root for state in await task.chain()]
    texts = [text for root in roots if root is not None for text in _texts(root.facts["input"])]
    if texts[-1] == "add":
        with task.call("add", executor="client") as call:
            call.arguments("{}")
        return
    with task.message() as message:
        message.text(" ".join(texts))


async def recalls(task: Task) -> None:
    """Say what a model would read; ask the client's tool and one of our own on the way."""
    read = history(await task.chain(), "openai_chat").items
    asked = read[-1]["content"]
    with task.reasoning() as thinking:
        thinking.summary("Hm.")
    if asked == "pick":
        with task.call("pick", executor="client") as call:
            call.arguments("{}")
        return
    with task.call("look_up") as call:
        call.arguments("{}")
    call.result("15 C")
    with task.message() as message:
        calls = [call for one in read for call in one.get("tool_calls", ())]
        called = [f"{call['function']['name']}()" for call in calls]
        message.text(" | ".join([*called, *(str(one.get("content")) for one in read)]))


def _texts(given: Any) -> list[str]:
    """The words of the UI messages that one run was asked, and `=` for a tool's output."""
    messages = given if isinstance(given, list) else [given]
    parts = [part for one in messages for part in one["parts"]]
    if messages[-1]["role"] == "assistant":
        return ["="]
    return [part["text"] for part in parts if part["type"] == "text"]


agents: dict[str, AgentFunction] = {
    "assistant": written_agent.assistant(0.0),
    "slow": written_agent.assistant(0.02),
    "broken": broken,
    "endless": endless,
    "recovered": recovered,
    "remembers": remembers,
    "recalls": recalls,
    "editor": editor,
}

app = Tailrace(
    agents,
    os.environ.get("TAILRACE_TEST_DB", ":memory:"),
    origins=os.environ.get("TAILRACE_TEST_ORIGINS", "").split(),
)
