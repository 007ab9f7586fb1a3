"""Agent frameworks over HTTP, each as its documentation has one write a streaming endpoint.

    GET /stream?count=N&rate=R    the deltas of the model that the limits have, as SSE

They keep nothing: what is measured is their own way from a delta to a frame. Each sends no more
than the delta, which is the least that a user of theirs would send, and reports nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from benchmarks.servers.limits import model

Stream = Callable[[int, float], AsyncIterator[str]]


def application(name: str) -> Starlette:
    """The endpoint of one framework."""
    frameworks = {
        "langgraph": langgraph,
        "openai-agents": openai_agents,
        "pydantic-ai": pydantic_ai,
    }
    stream = frameworks[name]()

    async def endpoint(request: Request) -> StreamingResponse:
        count, rate = request.query_params["count"], request.query_params["rate"]
        return StreamingResponse(stream(int(count), float(rate)), media_type="text/event-stream")

    return Starlette(routes=[Route("/stream", endpoint)])


def _sse(delta: str) -> str:
    return f"data: {json.dumps({'delta': delta})}\n\n"


def langgraph() -> Stream:
    """A graph of one node that writes to the custom stream: the leanest that LangGraph has."""
    # Read when it is imported: a trace would go to LangSmith's servers.
    os.environ["LANGSMITH_TRACING"] = os.environ["LANGCHAIN_TRACING_V2"] = "false"
    from typing import TypedDict

    from langgraph.config import get_stream_writer
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        count: int
        rate: float

    async def talk(state: State) -> dict[str, Any]:
        write = get_stream_writer()
        async for delta in model(state["count"], state["rate"]):
            write({"delta": delta})
        return {}

    # The hints of a node are looked up among the names of its module, where `State` is not.
    talk.__annotations__["state"] = State
    graph = StateGraph(State)
    graph.add_node("talk", talk)
    graph.add_edge(START, "talk")
    graph.add_edge("talk", END)
    compiled = graph.compile()

    async def stream(count: int, rate: float) -> AsyncIterator[str]:
        asked = State(count=count, rate=rate)
        async for chunk in compiled.astream(asked, stream_mode="custom"):
            yield _sse(chunk["delta"])

    return stream


def openai_agents() -> Stream:
    """An agent whose model is the limits', with the events that OpenAI's would send."""
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    from agents import Agent, Runner
    from openai.types.responses import ResponseTextDeltaEvent

    from benchmarks.servers.peers_model import Talker

    async def stream(count: int, rate: float) -> AsyncIterator[str]:
        result = Runner.run_streamed(Agent(name="talker", model=Talker(count, rate)), "Talk.")
        async for event in result.stream_events():
            if event.type == "raw_response_event" and isinstance(
                event.data, ResponseTextDeltaEvent
            ):
                yield _sse(event.data.delta)

    return stream


def pydantic_ai() -> Stream:
    """An agent whose model is the limits', as a function; its text is streamed in deltas."""
    from pydantic_ai import Agent
    from pydantic_ai.models.function import FunctionModel

    async def stream(count: int, rate: float) -> AsyncIterator[str]:
        agent = Agent(FunctionModel(stream_function=lambda *_: model(count, rate)))
        async with agent.run_stream("Talk.") as result:
            async for delta in result.stream_text(delta=True, debounce_by=None):
                yield _sse(delta)

    return stream
