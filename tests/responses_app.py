"""The application of the Responses tests: agents whose answer is what their model was asked."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

from tailrace import Agent, Tailrace, Task, image, tool
from tailrace.history import history
from tailrace.models import Scripted, call, fail, say, think
from tailrace.ports import Request, ToolSpec
from tailrace.runtime.agents.functions import AgentFunction


class Reader(Scripted):
    """Calls the first tool that it has, then says as JSON what it reads; it also summarizes."""

    def __init__(self) -> None:
        super().__init__([say("-")], name="reader")

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        return Scripted(self._answer(request), name=self.name).stream(request)

    def _answer(self, request: Request) -> list[Any]:
        read = history(request.chain, "openai_chat", task_id=request.task_id).items
        tools = [one.name for one in request.tools if isinstance(one, ToolSpec)]
        if (request.instructions or "").startswith("Summarize"):
            return [say(f"They said: {read[-1]['content']}")]
        if tools and request.tool_choice != "none" and read[-1]["role"] != "tool":
            chosen = request.tool_choice if request.tool_choice in tools else tools[0]
            return [think("Which city?"), call(str(chosen), location="San Francisco")]
        known = ("instructions", "temperature", "top_p", "max_output_tokens", "effort", "summary")
        asked: dict[str, Any] = {name: getattr(request, name) for name in known}
        asked |= {"tool_choice": request.tool_choice, "parallel_calls": request.parallel_calls}
        asked |= {"tools": tools, "read": [one["content"] for one in read]}
        asked["output"] = None
        if request.output is not None:
            asked["output"] = [request.output.name, request.output.schema, request.output.strict]
        return [think("Hm."), say(json.dumps(asked))]


@tool
async def look_up(location: str) -> str:
    """Looks a place up."""
    return f"{location} is foggy."


@tool(needs_approval=True, idempotent=True)
async def pay(euros: int) -> str:
    """Pays, a while after it was asked to."""
    await asyncio.sleep(0.3)
    return f"paid {euros}"


class Payer(Scripted):
    """Pays twice, then says what it read."""

    def __init__(self) -> None:
        super().__init__([say("-")], name="payer")

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        read = history(request.chain, "openai_chat", task_id=request.task_id).items
        tools = [one["content"].splitlines() for one in read if one["role"] == "tool"]
        results = [line for lines in tools for line in lines if line[:4] in ("paid", "Erro")]
        if read[-1]["content"] == "pay both":
            answer: list[Any] = [call("pay", euros=1), call("pay", euros=2)]
        elif read[-1]["role"] == "user" and read[-1]["content"] != "pay":
            answer = [say(json.dumps([one.get("content") for one in read]))]
        elif len(results) < 2:
            answer = [say("A moment."), call("pay", euros=len(results) + 5)]
        else:
            answer = [say(", ".join(results))]
        return Scripted(answer, name=self.name).stream(request)


careful = Agent(
    "careful",
    model=Scripted([call("pay", euros=7)], [say("It is paid.")]),
    tools=[pay],
)


async def hello(task: Task) -> str:
    return json.dumps(task.options)


async def endless(task: Task) -> None:
    with task.message() as message:
        while True:
            message.text("tick ")
            await asyncio.sleep(0.02)


async def phased(task: Task) -> None:
    """Comments, then answers, with the phases that OpenAI's models name."""
    for phase, text in (("commentary", "I count."), ("final_answer", "Four.")):
        with task.message() as message:
            message.text(text)
            message.finish(phase=phase)


@tool
async def paint(count: int) -> list[Any]:
    """Paints pictures that are too large to be inline."""
    return [image(PICTURE + bytes([number]) * 3_000_000) for number in range(count)]


PICTURE = b"\x89PNG\r\n\x1a\n"


class Buyer(Scripted):
    """Calls `pay` and a function of its client, then says what it read."""

    def __init__(self, first: str, **arguments: Any) -> None:
        super().__init__([say("-")], name="buyer")
        self._first = call(first, **arguments)

    def stream(self, request: Request) -> AsyncIterator[list[str]]:
        read = history(request.chain, "openai_chat", task_id=request.task_id).items
        answer: list[Any] = [say(json.dumps([one["content"] for one in read[1:]]))]
        if read[-1]["content"] == "buy":
            answer = [self._first, call("find", what="tea")]
        return Scripted(answer, name=self.name).stream(request)


async def broken(_task: Task) -> None:
    raise RuntimeError("broken")


agents: dict[str, AgentFunction] = {
    "reader": Agent("reader", model=Reader(), instructions="Be brief."),
    "fixed": Agent(
        "fixed",
        model=Reader(),
        temperature=0.2,
        top_p=0.9,
        max_output_tokens=100,
        effort="low",
        parallel_calls=False,
        output={"type": "object", "title": "mine"},
    ),
    "closed": Agent("closed", model=Reader(), client_options=()),
    "listed": Agent(
        "listed",
        model=Reader(),
        temperature=0.2,
        top_p=0.9,
        effort="low",
        client_options=["temperature", "reasoning"],
    ),
    "tooled": Agent("tooled", model=Reader(), tools=[look_up]),
    "payer": Agent("payer", model=Payer(), tools=[pay]),
    "careful": careful,
    "pair": Agent(
        "pair",
        model=Scripted(
            [call("pay", euros=1), call("look_up", location="Rome")], [say("Both are done.")]
        ),
        tools=[look_up, pay],
    ),
    "boss": Agent(
        "boss",
        model=Scripted([call("careful", prompt="Pay.")], [say("My agent has paid.")]),
        tools=[careful.as_tool()],
    ),
    "painter": Agent(
        "painter", model=Scripted([call("paint", count=3)], [say("Here.")]), tools=[paint]
    ),
    "buyer": Agent("buyer", model=Buyer("pay", euros=1), tools=[pay]),
    "office": Agent("office", model=Buyer("careful", prompt="Pay."), tools=[careful.as_tool()]),
    "calling": Agent(
        "calling", model=Scripted([call("look_up", location="Rome")]), tools=[look_up]
    ),
    "withheld": Agent(
        "withheld", model=Scripted([say("It is secret.")]), output_guardrails=[lambda _: "Secret."]
    ),
    "failing": Agent("failing", model=Scripted([fail("bad_request", "No.")])),
    "hello": hello,
    "endless": endless,
    "phased": phased,
    "broken": broken,
}
app = Tailrace(agents, os.environ.get("TAILRACE_TEST_DB", ":memory:"))
