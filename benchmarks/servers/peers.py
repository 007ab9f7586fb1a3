"""Agent frameworks over HTTP, each as its documentation has one write a streaming endpoint.

    GET /stream?count=N    the deltas of the model that the limits have, as SSE

They keep nothing: what is measured is their own way from a delta to a frame. Each sends no more
than the delta, which is the least that a user of theirs would send, and reports to nobody.
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

Stream = Callable[[int], AsyncIterator[str]]


def application(name: str) -> Starlette:
    """The endpoint of one framework."""
    stream = {"langgraph": langgraph, "openai-agents": openai_agents}[name]()

    async def endpoint(request: Request) -> StreamingResponse:
        count = int(request.query_params["count"])
        return StreamingResponse(stream(count), media_type="text/event-stream")

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

    async def talk(state: State) -> dict[str, Any]:
        write = get_stream_writer()
        async for delta in model(state["count"], 0.0):
            write({"delta": delta})
        return {}

    # The hints of a node are looked up among the names of its module, where `State` is not.
    talk.__annotations__["state"] = State
    graph = StateGraph(State)
    graph.add_node("talk", talk)
    graph.add_edge(START, "talk")
    graph.add_edge("talk", END)
    compiled = graph.compile()

    async def stream(count: int) -> AsyncIterator[str]:
        async for chunk in compiled.astream({"count": count}, stream_mode="custom"):
            yield _sse(chunk["delta"])

    return stream


def openai_agents() -> Stream:
    """An agent whose model is the limits', with the events that OpenAI's would send."""
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    from agents import Agent, Runner
    from openai.types.responses import ResponseTextDeltaEvent

    from benchmarks.servers.peers_model import Talker

    async def stream(count: int) -> AsyncIterator[str]:
        result = Runner.run_streamed(Agent(name="talker", model=Talker(count)), "Talk.")
        async for event in result.stream_events():
            if event.type == "raw_response_event" and isinstance(
                event.data, ResponseTextDeltaEvent
            ):
                yield _sse(event.data.delta)

    return stream
