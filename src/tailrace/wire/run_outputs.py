"""What the run envelope says of an answer, of a tool's result and of usage; see `wire.run`."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.core.fold import State
from tailrace.core.items import Data, ErrorInfo, File, Message, ToolCall, ToolResult
from tailrace.core.state import ItemNode, TaskNode, TextNode, WholeNode
from tailrace.wire.usage import usage_of_run

Json = dict[str, Any]

SUMMARY_CHARACTERS = 500
"""How much of a result's text its summary holds; the rest is a click away."""

UI_HINTS = "ui_hints"
"""The name of the data block in which a tool says how to show its result."""

STATUSES = ("success", "partial_success", "failed")
RESULT_TYPES = ("execution_report", "clarification", "error_report", "unknown")

INTERRUPTED = {"code": "interrupted", "message": "It was interrupted; another answer follows."}


def text_of(node: ItemNode) -> str:
    """The text of an item so far: the deltas of its blocks, put together."""
    return "".join(_texts(node))


def _texts(node: ItemNode) -> list[str]:
    return [part.text for _, part in sorted(node.parts.items()) if isinstance(part, TextNode)]


# --- the answer -----------------------------------------------------------------------------------


def worker_output(root: TaskNode, node: ItemNode) -> Json:
    """A message as the worker's output; rich when the structured output names a `ui_mode`."""
    output: Json = {
        "status": "success",
        "answer": text_of(node),
        "key_points": [],
        "result_type": "unknown",
        "suggested_actions": [],
        "error": None,
    }
    if node.superseded:
        return {**output, "status": "failed", "error": INTERRUPTED}
    if node.item.status != "completed":
        if root.status in ("failed", "cancelled"):
            return {**output, "status": "failed", "error": failure_of(root)}
        return {**output, "status": "partial_success"}
    value = root.structured_output["value"] if root.structured_output is not None else None
    return _structured(output, value) if isinstance(value, dict) else output


def _structured(output: Json, value: Json) -> Json:
    """The fields that the agent's own value has, each only as what it has to be."""
    for name, allowed in (("status", STATUSES), ("result_type", RESULT_TYPES)):
        if value.get(name) in allowed:
            output[name] = value[name]
    if isinstance(value.get("answer"), str):
        output["answer"] = value["answer"]
    for name in ("key_points", "suggested_actions"):
        if isinstance(value.get(name), list):
            output[name] = [one for one in value[name] if isinstance(one, str)]
    error = value.get("error")
    if isinstance(error, dict):
        output["error"] = {name: str(error.get(name, "")) for name in ("code", "message")}
    hints = value.get("ui_hints")
    if isinstance(hints, dict) and hints.get("ui_mode"):
        output["ui_hints"] = {
            "ui_mode": hints["ui_mode"],
            "ui_state": hints.get("ui_state") or {},
            "actions": hints.get("actions") or [],
        }
    return output


def failure_of(root: TaskNode) -> Json:
    """Why a run that failed or was cancelled did."""
    error = root.error
    if root.status == "cancelled" or error is None:
        message = root.reason or "It was cancelled."
        error = ErrorInfo(code="cancelled", message=message)
    return {"code": error.code, "message": error.message}


def usage_of(state: State, root: TaskNode) -> Json:
    """What the run used so far, sub-agents included; null where no model said."""
    used = usage_of_run(state) or {}
    return {
        "model": used.get("model", root.facts.get("model")),
        "inputTokens": used.get("input_tokens"),
        "outputTokens": used.get("output_tokens"),
        "cost": used.get("cost"),
        "latencyMs": used.get("latency_ms"),
    }


# --- tools ----------------------------------------------------------------------------------------


def arguments_of(node: ItemNode | None) -> Json | None:
    """A call's arguments, when they are whole and an object; never made from a part of them."""
    if node is None or node.item.status != "completed" or node.arguments is None:
        return None
    try:
        value = msgspec.json.decode(node.arguments.text or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def tool_output(root: TaskNode, node: ItemNode, item: ToolResult) -> Json:
    """A tool's result in short."""
    call = root.calls.get(item.call_id)
    name = call.item.name if call is not None and isinstance(call.item, ToolCall) else ""
    is_whole = item.status == "completed"
    return {
        "tool_name": name,
        "tool_call_id": item.call_id,
        "tool_call_args": arguments_of(call),
        "status": "success" if is_whole else "failed",
        "result_summary": _cut(_result_text(root, node, item)),
        "ui_hints": _ui_hints(node),
        "attachments": _attachments(node) or None,
    }


def _result_text(root: TaskNode, node: ItemNode, item: ToolResult) -> str:
    """Its texts; else its data; else what the sub-agents said that answered the call."""
    if item.error is not None:
        return item.error.message
    blocks = [one for one in _data(node) if one.name != UI_HINTS]
    data = [msgspec.json.encode(one.data).decode() for one in blocks]
    said = [
        text
        for child in root.children
        if child.call_id == item.call_id
        for one in child.output()[-1:]
        if isinstance(one.item, Message)
        for text in _texts(one)
    ]
    return "\n".join(_texts(node) or data or said)


def _data(node: ItemNode) -> list[Data]:
    parts = [part for _, part in sorted(node.parts.items()) if isinstance(part, WholeNode)]
    return [part.block for part in parts if isinstance(part.block, Data)]


def _ui_hints(node: ItemNode) -> Json | None:
    """What a tool says on how to show its result: its data block of that name, if an object."""
    found = [one.data for one in _data(node) if one.name == UI_HINTS]
    return found[-1] if found and isinstance(found[-1], dict) else None


def _cut(text: str) -> str:
    return text if len(text) <= SUMMARY_CHARACTERS else text[: SUMMARY_CHARACTERS - 1] + "…"


def _attachments(node: ItemNode) -> list[Json]:
    """The files of a result that lie in a bucket."""
    blocks = [part.block for _, part in sorted(node.parts.items()) if isinstance(part, WholeNode)]
    return [
        {"bucket": one.bucket, "path": one.path, "mime_type": one.mime_type, "url": one.url}
        for one in blocks
        if isinstance(one, File) and one.bucket is not None and one.path is not None
    ]
