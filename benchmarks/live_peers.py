"""Agent frameworks in the race for events a second, and how far ahead of them we want to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.client import Server, node_server, server
from benchmarks.harness import Table, Target, at_least

LANGGRAPH = "LangGraph, custom stream"
OPENAI_AGENTS = "openai-agents"
AI_SDK = "AI SDK"
SCRIPT = Path(__file__).parent / "servers" / "ai_sdk.mjs"

REMARK = (
    "The frameworks keep nothing. Their models yield to the loop likewise, and their users' "
    "endpoints send nothing but the delta: LangGraph's and openai-agents' with Starlette on the "
    "same uvicorn, the AI SDK's as a UI message stream on Node's own server."
)


@contextmanager
def frameworks(folder: str, count: int) -> Iterator[dict[str, Callable[[], object]]]:
    """One run of so many deltas on each of them, in processes that last as long as the block."""
    with ExitStack() as started:
        langgraph = started.enter_context(server("langgraph", folder))
        agents = started.enter_context(server("openai-agents", folder))
        ai_sdk = started.enter_context(node_server(SCRIPT))
        yield {
            LANGGRAPH: partial(_read, langgraph, count, b'data: {"delta": '),
            OPENAI_AGENTS: partial(_read, agents, count, b'data: {"delta": '),
            AI_SDK: partial(_read, ai_sdk, count, b'data: {"type":"text-delta"'),
        }


def _read(one: Server, count: int, delta: bytes) -> None:
    found = one.read(f"/stream?count={count}").count(delta)
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
