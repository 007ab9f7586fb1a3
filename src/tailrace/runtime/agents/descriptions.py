"""What clients may know of an agent: tools and schemas, but no instructions, options or keys."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import msgspec

from tailrace.runtime.agents.agent import Agent
from tailrace.runtime.agents.functions import AgentFunction
from tailrace.runtime.tools.tool import Tool


class ToolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of an agent."""

    name: str
    description: str
    parameters: dict[str, Any] | None
    """The JSON Schema of its arguments; null for a provider's own tool."""
    executor: Literal["server", "client", "provider"]
    needs_approval: bool
    """Whether a person may have to approve a call."""


class AgentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that runs can be started with."""

    name: str
    description: str
    model: str | None
    """The name of its model, if it has one."""
    tools: list[ToolInfo]
    more_tools: bool
    """Whether it has more tools, which are only known at run time, as those of MCP servers."""
    output_schema: dict[str, Any] | None
    """The JSON Schema of its answer; null for text."""


def agent_info(name: str, agent: AgentFunction) -> AgentInfo:
    """Describe an agent. A function is described by the first line of its docstring."""
    if not isinstance(agent, Agent):
        lines = (inspect.getdoc(agent) or "").splitlines() if inspect.isroutine(agent) else []
        return AgentInfo(
            name=name,
            description=lines[0] if lines else "",
            model=None,
            tools=[],
            more_tools=False,
            output_schema=None,
        )
    tools = [_tool_info(tool) for tool in agent.tools if isinstance(tool, Tool)]
    # Only the type: the other fields may hold the keys of a server.
    theirs = [str(provider_tool.get("type")) for provider_tool in agent._provider_tools]
    return AgentInfo(
        name=name,
        description=agent.description,
        model=agent._model_name or (agent._opened.name if agent._opened is not None else None),
        tools=tools + [_provider_tool(kind) for kind in theirs],
        more_tools=any(not isinstance(tool, Tool) for tool in agent.tools),
        output_schema=agent.output.schema.schema if agent.output is not None else None,
    )


def _tool_info(tool: Tool) -> ToolInfo:
    return ToolInfo(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        executor=tool.executor,
        needs_approval=bool(tool.needs_approval),
    )


def _provider_tool(kind: str) -> ToolInfo:
    return ToolInfo(
        name=kind, description="", parameters=None, executor="provider", needs_approval=False
    )
