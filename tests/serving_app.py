"""The application that `tests.serving` serves."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from examples.research import editor
from tailrace import Agent, tool
from tailrace.app import Tailrace
from tailrace.core.closing_events import close_all
from tailrace.core.errors import RateLimited
from tailrace.core.events import TaskAttempt
from tailrace.core.items import Data, Usage
from tailrace.history import history
from tailrace.models import Scripted, call, say, think
from tailrace.runtime.agents.functions import AgentFunction, restartable
from tailrace.runtime.followers import other_processes
from tailrace.runtime.tasks.inbox import receive
from tailrace.runtime.tasks.task import Task
from tailrace.testing.waiting import until
from tests import written_agent


async def broken(task: Task) -> None:
    with task.message() as message:
        message.text("Half an ans")
        await task.drain()
        raise RuntimeError("the secret password is hunter2")


async def refused(_task: Task) -> None:
    """Fail before any output, with an error that providers have."""
    raise RateLimited("The provider's limit is reached.")


async def endless(task: Task) -> None:
    with task.message() as message:
        while True:
            message.text("tick ")
            await asyncio.sleep(0.02)


async def lengthy(task: Task) -> None:
    """Write so many bytes into the log, half of them text, and go on."""
    for _ in range(task.input // 500_000):
        with task.message() as message:
            message.text("x" * 250_000)
        await task.drain()
    task.notice("All is written.")
    await receive(task)


async def recovered(task: Task) -> None:
    """Writes as a worker that takes over a run in the middle of a message."""
    lost = task.message().__enter__()
    lost.text("Half an ans")
    for event in close_all(task._sink.node):
        task.emit(event)
    ident = task._sink.node.items[0].id
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


async def echoes(task: Task) -> str:
    """Say how many messages a model would read, and which; of its own answers the number."""
    read = [str(one["content"]) for one in history(await task.chain(), "openai_chat").items]
    words = [text.partition(" read: ")[0] for text in read]
    return f"{len(words)} read: {' | '.join(words)}"


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


async def stepped(task: Task) -> None:
    """Write one step of every kind whenever the test lets it."""
    for number, _ in enumerate(_steps(task)):
        await task.drain()
        await until(Path(os.environ["TAILRACE_TEST_GATE"], f"step {number}").exists)


def _steps(task: Task) -> Iterator[None]:
    with task.step("think"), task.reasoning() as thinking:
        for word in ("First ", "the ", "facts."):
            thinking.summary(word)
            yield
    with task.call("get_weather") as call:
        for piece in ('{"city":', '"Paris"}'):
            call.arguments(piece)
            yield
    call.start()
    yield
    call.progress("asking", 1, 2)
    yield
    call.result("15 °C")
    yield
    with task.call("ask_for_help") as call:
        call.arguments("{}")
    call.start()
    with call.delegate("stylist", "What to wear?") as child:
        with child.message() as message:
            for word in ("A ", "jacket."):
                message.text(word)
                yield
        child.usage(Usage(model="scripted", input_tokens=9, output_tokens=3))
    yield
    with task.message() as message:
        for word in ("It ", "is ", "15 °C.[^1] ", "Take a jacket 🧥.[^2]"):
            message.text(word)
            yield
    task.usage(Usage(model="scripted", input_tokens=41, output_tokens=12, reasoning_tokens=3))
    yield


async def begins_again(task: Task) -> None:
    """Stop in the middle of a message; the worker that takes over writes another."""
    is_first = not task._sink.node.items
    with task.message() as message:
        message.text("Half an ans" if is_first else "A whole answer.")
        await task.drain()
        if is_first:
            await asyncio.Event().wait()


async def options(task: Task) -> str:
    """Say what its client sent besides messages."""
    return json.dumps({"options": task.options, "metadata": task.metadata})


async def counts(task: Task) -> None:
    """Add 1 to the count in the client's state."""
    state = {"count": task.options.get("state", {}).get("count", 0) + 1}
    with task.message() as message:
        message.whole(Data(data=state, name="state"))


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Current weather."""
    return {"city": city, "sky": "clear"}


@tool(needs_approval=True)
async def send_mail(to: str) -> str:
    """Sends a mail."""
    return f"sent to {to}"


@tool(executor="client")
def locate() -> str:
    """Where the user is."""
    raise NotImplementedError  # the client carries it out


weather = Agent(
    "weather",
    model=Scripted([think("Hm."), call("get_weather", city="Paris")], [say("It is clear.[^1]")]),
    tools=[get_weather],
)
mailer = Agent(
    "mailer",
    model=Scripted([call("send_mail", to="ada")], [say("Done.")]),
    tools=[send_mail],
)
secretary = Agent(
    "secretary",
    model=Scripted(
        [call("send_mail", to="ada"), call("get_weather", city="Paris")], [say("Both are done.")]
    ),
    tools=[send_mail, get_weather],
)
billing = Agent("billing", model=Scripted([think("Hm."), say("You get 5 euros back.")]))
triage = Agent("triage", model=Scripted([call("transfer_to_billing")]), handoffs=[billing])
guide = Agent("guide", model=Scripted([call("locate")], [say("You are there.")]), tools=[locate])
scout = Agent(
    "scout",
    model=Scripted([call("send_mail", to="ada"), call("locate")], [say("Both are done.")]),
    tools=[send_mail, locate],
)
picker = Agent("picker", model=Scripted([call("pick")], [say("A fine colour.")]))


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
    "refused": refused,
    "endless": endless,
    "lengthy": lengthy,
    "recovered": recovered,
    "remembers": remembers,
    "recalls": recalls,
    "echoes": echoes,
    "stepped": stepped,
    "begins_again": restartable(begins_again),
    "options": options,
    "counts": counts,
    "editor": editor,
    "weather": weather,
    "mailer": mailer,
    "secretary": secretary,
    "guide": guide,
    "scout": scout,
    "picker": picker,
    "triage": triage,
}

# Servers learn sooner whether another one follows a run.
other_processes.LOOK_SECONDS = float(
    os.environ.get("TAILRACE_TEST_LOOK", other_processes.LOOK_SECONDS)
)
other_processes.ANSWER_SECONDS = float(
    os.environ.get("TAILRACE_TEST_ANSWER", other_processes.ANSWER_SECONDS)
)

app = Tailrace(
    agents,
    os.environ.get("TAILRACE_TEST_DB", ":memory:"),
    origins=os.environ.get("TAILRACE_TEST_ORIGINS", "").split(),
    bus=os.environ.get("TAILRACE_TEST_BUS"),
    worker=os.environ.get("TAILRACE_TEST_WORKER") != "no",
    lease=timedelta(seconds=float(os.environ.get("TAILRACE_TEST_LEASE", "10"))),
    grace=timedelta(seconds=float(os.environ.get("TAILRACE_TEST_GRACE", "30"))),
)
