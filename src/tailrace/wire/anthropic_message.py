"""The message around the blocks of Anthropic's stream: its start, its usage, its end."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tailrace.core import sse
from tailrace.core.fold import State
from tailrace.core.items import (
    Annotation,
    ErrorInfo,
    FileCitation,
    Message,
    RawAnnotation,
)
from tailrace.core.state import ItemNode, TaskNode
from tailrace.wire.base import Frame
from tailrace.wire.openai_items import Json, Sources, is_client
from tailrace.wire.usage import usage_of_run
from tailrace.wire.vercel_chunks import tame

_json = msgspec.json.Encoder().encode

INTERRUPTED = ErrorInfo(
    code="interrupted", message="The answer was begun again after a fault; ask for it again."
)
CUT_CALL = ErrorInfo(code="incomplete_call", message="The message ended inside a tool call.")
_CUT = ErrorInfo(code="cut", message="The stream ended before the answer did.")

_STOPPED = {
    "content_filter": "refusal",
    "model_context_window_exceeded": "model_context_window_exceeded",
    "pause_turn": "pause_turn",
    "refusal": "refusal",
}
"""Reasons of an incomplete run that have a name there."""

_SHORT = "max_tokens"
"""Any other one, and a cancel: what every client takes for an answer that goes no further, with
nothing to carry out and nothing to ask for again."""

_ERRORS = {
    "connect_timeout": "timeout_error",
    "first_event_timeout": "timeout_error",
    "idle_timeout": "timeout_error",
    "invalid_request": "invalid_request_error",
    "key_refused": "authentication_error",
    "not_found": "not_found_error",
    "overloaded": "overloaded_error",
    "rate_limited": "rate_limit_error",
    "request_refused": "invalid_request_error",
    "timeout": "timeout_error",
}
_THEIRS = re.compile("[a-z_]+_error")
"""How Anthropic names an error; its own come through as they are."""

_PLACES = {
    "char_location": ("document_index", "start_char_index", "end_char_index"),
    "page_location": ("document_index", "start_page_number", "end_page_number"),
}
"""Anthropic's own citations of documents. It has more kinds, which the AI SDK fails on."""


def frame(kind: str, /, **fields: object) -> Frame:
    """One event. The SDKs skip what has no `event:` line."""
    return sse.frame(tame(_json({"type": kind, **fields})), event=kind)


def started(state: State) -> Frame:
    """`message_start`: who answers. What is used is known at the end."""
    root = state.root
    assert root is not None
    ident = root.task_id
    message: Json = {
        "id": ident if ident.startswith("msg_") else f"msg_{ident}",
        "type": "message",
        "role": "assistant",
        "model": root.facts.get("agent") or root.facts.get("model") or "",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    return frame("message_start", message=message)


def stopped(state: State, reason: str) -> list[Frame]:
    """A proper end."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        frame("message_delta", delta=delta, usage=_usage(state)),
        frame("message_stop"),
    ]


def failed(error: ErrorInfo) -> Frame:
    """The end of a stream that has no proper one."""
    kind = error.code if _THEIRS.fullmatch(error.code) else _ERRORS.get(error.code, "api_error")
    return frame("error", error={"type": kind, "message": error.message})


def ended(state: State) -> list[Frame]:
    """How a run ended whose blocks are all told."""
    root = state.root
    assert root is not None
    if root.status == "failed":
        assert root.error is not None
        return [failed(root.error)]
    if root.status == "completed":
        return stopped(state, _answered(root))
    if root.reason in ("cut", "incomplete_call"):
        return [failed(_CUT)]
    return stopped(state, _STOPPED.get(root.reason or "", _SHORT))


def paused(state: State, untold: list[ItemNode]) -> list[Frame]:
    """The end of a stream whose run waits: for the client's own tools, or for people.

    A call that is `untold`, because something before it is not over, is none that it could make.
    """
    root = state.root
    assert root is not None
    return stopped(state, "tool_use" if _waits_for_client(root, untold) else "pause_turn")


def _answered(root: TaskNode) -> str:
    if _waits_for_client(root, []):
        return "tool_use"
    said = [node for node in root.output() if isinstance(node.item, Message)]
    return "refusal" if said and _refuses(said[-1]) else "end_turn"


def _waits_for_client(root: TaskNode, untold: list[ItemNode]) -> bool:
    return any(
        is_client(node.item)
        and node not in untold
        and node.item.status == "completed"
        and node.item.call_id not in root.call_results  # type: ignore[union-attr]  # a ToolCall
        for node in root.output()
    )


def _refuses(node: ItemNode) -> bool:
    return any(part.kind == "refusal" for part in node.parts.values())


def _usage(state: State) -> Json:
    """What the whole run used, sub-agents included: it is one message there.

    Anthropic counts what was read from a cache, or written to it, apart from `input_tokens`.
    """
    used = usage_of_run(state) or {}
    read, written = used.get("cached_input_tokens", 0), used.get("cache_write_tokens", 0)
    shown: Json = {
        "input_tokens": max(used.get("input_tokens", 0) - read - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": used.get("output_tokens", 0),
    }
    thought = used.get("reasoning_tokens", 0)
    if thought:
        shown["output_tokens_details"] = {"thinking_tokens": thought}
    return shown


def citation(sources: Sources, root: TaskNode, annotation: Annotation, at: int) -> Json | None:
    """An annotation as a citation of the block it stands in; it has no range there.

    A link is what `web_search_result_location` says, the one kind that all SDKs show; the passage
    itself is not known, nor is Anthropic's own seal of it.
    """
    if isinstance(annotation, RawAnnotation):
        return _place(annotation.raw)
    if isinstance(annotation, FileCitation):
        return {
            "type": "char_location",
            "cited_text": "",
            "document_index": annotation.index or 0,
            "document_title": annotation.filename or None,
            "file_id": annotation.file_id,
            "start_char_index": annotation.start_index or 0,
            "end_char_index": annotation.end_index or 0,
        }
    link = sources.citation(root, annotation, at)
    assert link is not None
    return {
        "type": "web_search_result_location",
        "cited_text": "",
        "encrypted_index": "",
        "title": link["title"],
        "url": link["url"],
    }


def _place(raw: Any) -> Json | None:
    """A place in a document, as Anthropic gave it."""
    kind = raw.get("type") if isinstance(raw, dict) else None
    if not isinstance(kind, str) or kind not in _PLACES:
        return None
    numbers = {name: raw.get(name) for name in _PLACES[kind]}
    cited, title = raw.get("cited_text"), raw.get("document_title")
    if not isinstance(cited, str) or any(type(number) is not int for number in numbers.values()):
        return None
    shown = title if isinstance(title, str) else None
    return {"type": kind, "cited_text": cited, "document_title": shown, **numbers}
