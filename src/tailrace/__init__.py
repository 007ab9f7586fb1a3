"""Tailrace: the stateful streaming runtime for AI agents.

An agent run is an append-only log of typed events. The live stream, the final object, the
history that the model sees and every client's wire format are folds or projections of that log.

    from tailrace import Agent, Tailrace, Task, tool

Other public modules: `tailrace.errors`, `tailrace.events`, `tailrace.history`, `tailrace.models`,
`tailrace.ports` and `tailrace.testing`. All others are private.

This module stays light: the web framework and the database are loaded when a name needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.app import Tailrace
    from tailrace.buses import open_bus
    from tailrace.convert import transcode
    from tailrace.core.items import ErrorInfo, InputRequest, Usage
    from tailrace.core.tool_output import file, image
    from tailrace.runtime.agent import Agent
    from tailrace.runtime.agent_functions import restartable
    from tailrace.runtime.call_writer import PendingCall
    from tailrace.runtime.failures import ToolError
    from tailrace.runtime.function_tools import streaming_tool, tool
    from tailrace.runtime.inbox import receive
    from tailrace.runtime.limits import Limits
    from tailrace.runtime.mcp_tools import mcp_server
    from tailrace.runtime.memory import Memory
    from tailrace.runtime.run import Result, Run
    from tailrace.runtime.sub_agents import ask_for_help
    from tailrace.runtime.task import Answer, Task
    from tailrace.runtime.tool_values import notify, partial_image
    from tailrace.runtime.tools import Context, Tool
    from tailrace.server.auth import ApiKeys, Principal
    from tailrace.server.limits import ServerLimits
    from tailrace.server.repair_middleware import ResponsesCompat
    from tailrace.stores import open_store

__version__ = "0.1.0.dev0"
__all__ = [
    "Agent",
    "Answer",
    "ApiKeys",
    "Context",
    "ErrorInfo",
    "InputRequest",
    "Limits",
    "Memory",
    "PendingCall",
    "Principal",
    "ResponsesCompat",
    "Result",
    "Run",
    "ServerLimits",
    "Tailrace",
    "Task",
    "Tool",
    "ToolError",
    "Usage",
    "__version__",
    "ask_for_help",
    "file",
    "image",
    "mcp_server",
    "notify",
    "open_bus",
    "open_store",
    "partial_image",
    "receive",
    "restartable",
    "streaming_tool",
    "tool",
    "transcode",
]

_HOMES = {
    "Agent": "tailrace.runtime.agent",
    "Answer": "tailrace.runtime.task",
    "ApiKeys": "tailrace.server.auth",
    "Context": "tailrace.runtime.tools",
    "ErrorInfo": "tailrace.core.items",
    "InputRequest": "tailrace.core.items",
    "Limits": "tailrace.runtime.limits",
    "Memory": "tailrace.runtime.memory",
    "PendingCall": "tailrace.runtime.call_writer",
    "Principal": "tailrace.server.auth",
    "ResponsesCompat": "tailrace.server.repair_middleware",
    "Result": "tailrace.runtime.run",
    "Run": "tailrace.runtime.run",
    "ServerLimits": "tailrace.server.limits",
    "Tailrace": "tailrace.app",
    "Task": "tailrace.runtime.task",
    "Tool": "tailrace.runtime.tools",
    "ToolError": "tailrace.runtime.failures",
    "Usage": "tailrace.core.items",
    "ask_for_help": "tailrace.runtime.sub_agents",
    "file": "tailrace.core.tool_output",
    "image": "tailrace.core.tool_output",
    "mcp_server": "tailrace.runtime.mcp_tools",
    "notify": "tailrace.runtime.tool_values",
    "open_bus": "tailrace.buses",
    "open_store": "tailrace.stores",
    "partial_image": "tailrace.runtime.tool_values",
    "receive": "tailrace.runtime.inbox",
    "restartable": "tailrace.runtime.agent_functions",
    "streaming_tool": "tailrace.runtime.function_tools",
    "tool": "tailrace.runtime.function_tools",
    "transcode": "tailrace.convert",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
