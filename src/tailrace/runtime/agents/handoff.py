"""Handing a conversation over: the model calls `transfer_to_billing`, and `billing` speaks on.

    triage = Agent("triage", model=…, handoffs=[billing, refunds])

The call gets a result, and `task.agent.switched` names the agent that speaks from there on. The
next model call uses that agent's model, instructions and tools, on the same history.

The log alone decides who speaks. The call counts once it has started and has a result. So a worker
that is lost inside the result, or between the result and the event, leaves the event to the next
worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.core.items import Text, TextPart, ToolCall
from tailrace.core.state import ItemNode, TaskNode
from tailrace.core.tool_output import ToolOutput
from tailrace.runtime.tools.tool import Context, Tool

if TYPE_CHECKING:
    from tailrace.runtime.agents.agent import Agent

_REASON = {"type": "string", "description": "Why the other agent takes over."}


class Handoff(Tool):
    """The tool by which an agent hands the conversation to another agent."""

    def __init__(self, agent: Agent) -> None:
        known = f" {agent.description}" if agent.description else ""
        super().__init__(
            f"transfer_to_{agent.name}",
            function=self._transfer,
            description=f"Hands the conversation to the agent {agent.name}.{known}",
            parameters={"type": "object", "properties": {"reason": _REASON}},
            idempotent=True,
        )
        self.agent = agent

    def _transfer(self, _arguments: dict[str, Any], _context: Context) -> ToolOutput:
        text = f"{self.agent.name} takes over."
        return ToolOutput([TextPart(text=text)], [Text(text=text)])  # nothing to cite

    def reason_of(self, call: ItemNode) -> str | None:
        """Why the model called it, if it wrote that."""
        written = self.validate(call.arguments_text)
        reason = written.get("reason")
        return reason if isinstance(reason, str) and reason else None


def handed_to(agent: Any, name: str | None) -> Any:
    """The agent of this name that a conversation can reach from `agent` by handoffs, or None."""
    seen: list[Any] = []
    left = [agent]
    while left:
        found = left.pop()
        if found.name == name:
            return found
        if found not in seen:
            seen.append(found)
            left += [tool.agent for tool in found.tools if isinstance(tool, Handoff)]
    return None


def chosen(node: TaskNode, tools: dict[str, Tool]) -> tuple[Handoff, ItemNode] | None:
    """The handoff that the agent that speaks has called, with the call; None without a call."""
    since = node.switches[-1]["output_index"] if node.switches else 0
    for item in node.output():
        if item.output_index < since or not isinstance(item.item, ToolCall):
            continue
        tool, result = tools.get(item.item.name), node.call_results.get(item.item.call_id)
        # A refused handoff never starts. A result that a lost worker left open is `interrupted`.
        if isinstance(tool, Handoff) and item.started and result is not None and not result.is_open:
            return tool, item
    return None
