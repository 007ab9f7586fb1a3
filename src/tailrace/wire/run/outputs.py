"""Answers, tool results and usage in the run envelope."""

from __future__ import annotations

from tailrace.core.fold import State
from tailrace.core.items import Data, ErrorInfo, File, Message, ToolCall, ToolResult
from tailrace.core.state import ItemNode, TaskNode, TextNode, WholeNode
from tailrace.core.tool_arguments import arguments_value
from tailrace.core.tool_output import UI_HINTS
from tailrace.core.values import Json, json_text
from tailrace.wire.projection import arguments_of, usage_of_run

SUMMARY_CHARACTERS = 500
"""The length of a result's summary, in characters."""

STATUSES = ("success", "partial_success", "failed")
RESULT_TYPES = ("execution_report", "clarification", "error_report", "unknown")

_SUPERSEDED = {"code": "interrupted", "message": "It was interrupted; another answer follows."}


def item_text(node: ItemNode) -> str:
    """The text of an item so far: the texts of its blocks, joined."""
    return "".join(_texts(node))


def _texts(node: ItemNode) -> list[str]:
    return [part.text for _, part in sorted(node.parts.items()) if isinstance(part, TextNode)]


# --- the answer -----------------------------------------------------------------------------------


def worker_output(root: TaskNode, node: ItemNode) -> Json:
    """A message as `workerAgentOutput`, with the fields of a structured output that has them."""
    output: Json = {
        "status": "success",
        "answer": item_text(node),
        "key_points": [],
        "result_type": "unknown",
        "suggested_actions": [],
        "error": None,
    }
    if node.superseded:
        return {**output, "status": "failed", "error": _SUPERSEDED}
    if node.item.status != "completed":
        if root.status in ("failed", "cancelled"):
            return {**output, "status": "failed", "error": failure_of(root)}
        return {**output, "status": "partial_success"}
    value = root.structured_output["value"] if root.structured_output is not None else None
    return _structured(output, value) if isinstance(value, dict) else output


def _structured(output: Json, value: Json) -> Json:
    """Take the fields of the agent's value that have the right type."""
    for name, allowed in (("status", STATUSES), ("result_type", RESULT_TYPES)):
        if value.get(name) in allowed:
            output[name] = value[name]
    if isinstance(value.get("answer"), str):
        output["answer"] = value["answer"]
    for name in ("key_points", "suggested_actions"):
        if isinstance(value.get(name), list):
            output[name] = [entry for entry in value[name] if isinstance(entry, str)]
    error = value.get("error")
    if isinstance(error, dict):
        output["error"] = {name: str(error.get(name, "")) for name in ("code", "message")}
    for hints in (value.get("ui_hints"), value.get("ui")):
        if isinstance(hints, dict) and hints.get("ui_mode"):
            output["ui_hints"] = {
                "ui_mode": hints["ui_mode"],
                "ui_state": hints.get("ui_state") or {},
                "actions": hints.get("actions") or [],
            }
            break
    return output


def failure_of(root: TaskNode) -> Json:
    """Why a run failed or was cancelled."""
    error = root.error
    if root.status == "cancelled" or error is None:
        message = root.reason or "It was cancelled."
        error = ErrorInfo(code="cancelled", message=message)
    return {"code": error.code, "message": error.message}


def usage_of(state: State, root: TaskNode) -> Json:
    """The usage of the run and its sub-agents so far; null where no model reported it."""
    used = usage_of_run(state) or {}
    return {
        "model": used.get("model", root.facts.get("model")),
        "inputTokens": used.get("input_tokens"),
        "outputTokens": used.get("output_tokens"),
        "cost": used.get("cost"),
        "latencyMs": used.get("latency_ms"),
    }


# --- tools ----------------------------------------------------------------------------------------


def arguments_object(root: TaskNode, node: ItemNode | None) -> Json | None:
    """The arguments of a complete call, if they are an object."""
    if node is None or node.item.status != "completed" or node.arguments is None:
        return None
    value = arguments_value(arguments_of(root, node))
    return value if isinstance(value, dict) else None


def tool_agent_output(root: TaskNode, node: ItemNode, item: ToolResult) -> Json:
    """A tool's result as `toolAgentOutput`."""
    call = root.calls.get(item.call_id)
    name = call.item.name if call is not None and isinstance(call.item, ToolCall) else ""
    return {
        "tool_name": name,
        "tool_call_id": item.call_id,
        "tool_call_args": arguments_object(root, call),
        "status": "success" if item.status == "completed" else "failed",
        "result_summary": _cut(_result_text(root, node, item)),
        "ui_hints": _ui_hints(node),
        "attachments": _attachments(node) or None,
    }


def _result_text(root: TaskNode, node: ItemNode, item: ToolResult) -> str:
    """The texts of a result; else its data; else the last messages of its sub-agents."""
    if item.error is not None:
        return item.error.message
    blocks = [block for block in _data(node) if block.name != UI_HINTS]
    data = [json_text(block.data) for block in blocks]
    answers = [
        text
        for child in root.children
        if child.call_id == item.call_id
        for last in child.output()[-1:]
        if isinstance(last.item, Message)
        for text in _texts(last)
    ]
    return "\n".join(_texts(node) or data or answers)


def _data(node: ItemNode) -> list[Data]:
    parts = [part for _, part in sorted(node.parts.items()) if isinstance(part, WholeNode)]
    return [part.block for part in parts if isinstance(part.block, Data)]


def _ui_hints(node: ItemNode) -> Json | None:
    """The last data block named `ui_hints`, if it is an object."""
    found = [block.data for block in _data(node) if block.name == UI_HINTS]
    return found[-1] if found and isinstance(found[-1], dict) else None


def _cut(text: str) -> str:
    return text if len(text) <= SUMMARY_CHARACTERS else text[: SUMMARY_CHARACTERS - 1] + "…"


def _attachments(node: ItemNode) -> list[Json]:
    """The files of a result that are stored in a bucket."""
    blocks = [part.block for _, part in sorted(node.parts.items()) if isinstance(part, WholeNode)]
    return [
        {"bucket": file.bucket, "path": file.path, "mime_type": file.mime_type, "url": file.url}
        for file in blocks
        if isinstance(file, File) and file.bucket is not None and file.path is not None
    ]
