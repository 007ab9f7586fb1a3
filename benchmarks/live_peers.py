"""Agent frameworks in the races over HTTP, and how far ahead of them we want to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.client import Server, node_server, server
from benchmarks.harness import Table, Target, at_least

LANGGRAPH = "LangGraph, custom stream"
OPENAI_AGENTS = "openai-agents"
PYDANTIC_AI = "pydantic-ai"
AI_SDK = "AI SDK"
SCRIPT = Path(__file__).parent / "servers" / "ai_sdk.mjs"

REMARK = (
    "The frameworks keep nothing. Their models also yield to the loop, and their endpoints send "
    "only the delta. LangGraph, openai-agents and pydantic-ai use Starlette on the same uvicorn. "
    "The AI SDK sends a UI message stream from Node's own server."
)


@contextmanager
def frameworks(folder: str) -> Iterator[dict[str, Server]]:
    """Each of them in a process that lasts as long as the block."""
    with ExitStack() as started:
        yield {
            LANGGRAPH: started.enter_context(server("langgraph", folder)),
            OPENAI_AGENTS: started.enter_context(server("openai-agents", folder)),
            PYDANTIC_AI: started.enter_context(server("pydantic-ai", folder)),
            AI_SDK: started.enter_context(node_server(SCRIPT)),
        }


def unpaced(peers: Mapping[str, Server], count: int) -> dict[str, Callable[[], object]]:
    """One run of so many deltas on each of them."""
    return {name: partial(_read, one, count) for name, one in peers.items()}


def _read(one: Server, count: int) -> None:
    found = one.read(f"/stream?count={count}&rate=0").count(b'"delta":')
    if found != count:
        raise AssertionError(f"{found} of {count} events came")


def targets(table: Table) -> list[Target]:
    """How many times as many events a second we have, though ours are durable."""
    (size,) = table.sizes

    def ahead(*peers: str) -> float:
        """Of the fastest of them: as the times of a round go, so the events a second."""
        return min(table.ratio(peer, table.ours, size) or 0.0 for peer in peers)

    return [
        at_least(
            f"{table.title}, to the faster of {OPENAI_AGENTS} and {AI_SDK}",
            5.0,
            ahead(OPENAI_AGENTS, AI_SDK),
        ),
        at_least(f"{table.title}, to {LANGGRAPH}", 2.0, ahead(LANGGRAPH)),
    ]
