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
    from tailrace.core.writers import MessageWriter, ReasoningWriter
    from tailrace.runtime.agents.agent import Agent
    from tailrace.runtime.agents.functions import restartable
    from tailrace.runtime.agents.limits import Limits
    from tailrace.runtime.agents.memory import Memory
    from tailrace.runtime.agents.sub_agents import ask_for_help
    from tailrace.runtime.diagnostics.failures import ToolError
    from tailrace.runtime.runs.run import Result, Run
    from tailrace.runtime.tasks.call_writer import CallWriter, PendingCall
    from tailrace.runtime.tasks.inbox import receive
    from tailrace.runtime.tasks.task import Answer, Task
    from tailrace.runtime.tools.from_functions import streaming_tool, tool
    from tailrace.runtime.tools.from_mcp import mcp_server
    from tailrace.runtime.tools.outputs import notify, partial_image
    from tailrace.runtime.tools.tool import Context, Tool
    from tailrace.server.access.auth import ApiKeys, Principal
    from tailrace.server.access.limits import ServerLimits
    from tailrace.server.repair_middleware import ResponsesCompat
    from tailrace.stores import open_store

__version__ = "0.1.0.dev0"
__all__ = [
    "Agent",
    "Answer",
    "ApiKeys",
    "CallWriter",
    "Context",
    "ErrorInfo",
    "InputRequest",
    "Limits",
    "Memory",
    "MessageWriter",
    "PendingCall",
    "Principal",
    "ReasoningWriter",
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
    "Agent": "tailrace.runtime.agents.agent",
    "Answer": "tailrace.runtime.tasks.task",
    "ApiKeys": "tailrace.server.access.auth",
    "CallWriter": "tailrace.runtime.tasks.call_writer",
    "Context": "tailrace.runtime.tools.tool",
    "ErrorInfo": "tailrace.core.items",
    "InputRequest": "tailrace.core.items",
    "Limits": "tailrace.runtime.agents.limits",
    "Memory": "tailrace.runtime.agents.memory",
    "MessageWriter": "tailrace.core.writers",
    "PendingCall": "tailrace.runtime.tasks.call_writer",
    "Principal": "tailrace.server.access.auth",
    "ReasoningWriter": "tailrace.core.writers",
    "ResponsesCompat": "tailrace.server.repair_middleware",
    "Result": "tailrace.runtime.runs.run",
    "Run": "tailrace.runtime.runs.run",
    "ServerLimits": "tailrace.server.access.limits",
    "Tailrace": "tailrace.app",
    "Task": "tailrace.runtime.tasks.task",
    "Tool": "tailrace.runtime.tools.tool",
    "ToolError": "tailrace.runtime.diagnostics.failures",
    "Usage": "tailrace.core.items",
    "ask_for_help": "tailrace.runtime.agents.sub_agents",
    "file": "tailrace.core.tool_output",
    "image": "tailrace.core.tool_output",
    "mcp_server": "tailrace.runtime.tools.from_mcp",
    "notify": "tailrace.runtime.tools.outputs",
    "open_bus": "tailrace.buses",
    "open_store": "tailrace.stores",
    "partial_image": "tailrace.runtime.tools.outputs",
    "receive": "tailrace.runtime.tasks.inbox",
    "restartable": "tailrace.runtime.agents.functions",
    "streaming_tool": "tailrace.runtime.tools.from_functions",
    "tool": "tailrace.runtime.tools.from_functions",
    "transcode": "tailrace.convert",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
