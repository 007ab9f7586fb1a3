"""Agent frameworks in the race of the loops, each as its documentation builds agents as tools.

Their models need no network and cost as little as they can, and no trace is sent anywhere. Agents
are built once for each size, in the round that warms up, as ours are.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from typing import Any

from benchmarks.loop_story import CALL_ID, PROMPT, ask, asks, deltas, look_up, name_of

Work = Callable[[int, int], Awaitable[int]]


def openai_agents() -> Work:
    """Nested with `as_tool(on_stream=…)`."""
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    from agents import Agent, Runner, function_tool
    from openai.types.responses import ResponseTextDeltaEvent

    from benchmarks.loop_models import Agents

    seen: list[str] = []

    def show(event: Any) -> None:
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            seen.append(event.data.delta)

    @cache
    def build(depth: int, count: int) -> Any:
        tools: list[Any] = [function_tool(look_up)]
        for level in range(1, depth + 1):
            agent = Agent(name="agent", model=Agents(count, depth, level), tools=tools)
            tools = [agent.as_tool(ask, "Asks.", on_stream=lambda found: show(found["event"]))]
        return agent

    async def work(depth: int, count: int) -> int:
        seen.clear()
        async for event in Runner.run_streamed(build(depth, count), PROMPT).stream_events():
            show(event)
        return len(seen)

    return work


def pydantic_ai() -> Work:
    """Nested with a tool that runs the next agent, as its guide to multiple agents does."""
    from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta, Tool
    from pydantic_ai.models.function import DeltaToolCall, FunctionModel

    def model(count: int, depth: int, level: int) -> FunctionModel:
        async def stream(messages: Any, _info: Any) -> AsyncIterator[Any]:
            if len(messages) == 1:
                called = DeltaToolCall(
                    name_of(level), json.dumps(asks(level)), tool_call_id=CALL_ID
                )
                yield {0: called}
                return
            async for delta in deltas(count, depth, level):
                yield delta

        return FunctionModel(stream_function=stream)

    def asking(agent: Any, handler: Any) -> Any:
        async def run(prompt: str) -> str:
            return str((await agent.run(prompt, event_stream_handler=handler)).output)

        return Tool(run, takes_ctx=False, name=ask)

    seen: list[str] = []

    async def show(_context: Any, events: Any) -> None:
        async for event in events:
            if isinstance(event, PartDeltaEvent):
                if isinstance(event.delta, TextPartDelta):
                    seen.append(event.delta.content_delta)
            elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                seen.append(event.part.content)

    @cache
    def build(depth: int, count: int) -> Any:
        tools: list[Any] = [look_up]
        for level in range(1, depth + 1):
            agent = Agent(model(count, depth, level), tools=tools)
            tools = [asking(agent, show)]
        return agent

    async def work(depth: int, count: int) -> int:
        seen.clear()
        await build(depth, count).run(PROMPT, event_stream_handler=show)
        return len(seen)

    return work


def langgraph() -> Work:
    """A graph of a model and a `ToolNode`, nested with a tool that invokes the next graph."""
    # Read when it is imported: a trace would go to LangSmith's servers.
    os.environ["LANGSMITH_TRACING"] = os.environ["LANGCHAIN_TRACING_V2"] = "false"
    from langchain_core.messages import AIMessageChunk
    from langchain_core.tools import StructuredTool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    from benchmarks.loop_models import Chat

    def graph(model: Chat, tool: Any) -> Any:
        async def talk(state: Any) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}

        built = StateGraph(MessagesState)
        built.add_node("model", talk)
        built.add_node("tools", ToolNode([tool]))
        built.add_edge(START, "model")
        built.add_conditional_edges("model", tools_condition)
        built.add_edge("tools", "model")
        return built.compile()

    def asking(inner: Any) -> StructuredTool:
        async def run(prompt: str) -> str:
            found = await inner.ainvoke({"messages": [("user", prompt)]})
            return str(found["messages"][-1].content)

        return StructuredTool.from_function(coroutine=run, name=ask, description="Asks.")

    @cache
    def build(depth: int, count: int) -> Any:
        made = StructuredTool.from_function(coroutine=look_up)
        for level in range(1, depth + 1):
            built = graph(Chat(count=count, depth=depth, level=level), made)
            made = asking(built)
        return built

    async def work(depth: int, count: int) -> int:
        seen = 0
        asked = {"messages": [("user", PROMPT)]}
        stream = build(depth, count).astream(asked, stream_mode="messages", subgraphs=True)
        async for _, (message, _) in stream:
            seen += isinstance(message, AIMessageChunk) and message.content != ""
        return seen

    return work


PEERS: dict[str, Callable[[], Work]] = {
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic_ai,
    "LangGraph": langgraph,
}
