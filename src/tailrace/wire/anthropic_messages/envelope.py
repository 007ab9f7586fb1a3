"""The message around the blocks of Anthropic's stream: start, usage and end."""

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
from tailrace.core.values import Json, dict_of, text_or_none
from tailrace.wire.base import Frame, safe_json
from tailrace.wire.projection import Sources, awaits_client, model_name, token_counts

_json = msgspec.json.Encoder().encode

CUT_CALL = ErrorInfo(code="incomplete_call", message="The message ended inside a tool call.")
_CUT = ErrorInfo(code="cut", message="The stream ended before the answer did.")

_STOPPED = {
    "content_filter": "refusal",
    "model_context_window_exceeded": "model_context_window_exceeded",
    "pause_turn": "pause_turn",
    "refusal": "refusal",
}
"""Reasons of an incomplete run that have a name in Anthropic's API."""

_SHORT = "max_tokens"
"""Any other reason, and a cancelled run: clients show the answer and do not ask again."""

_ERRORS = {
    "agent_error": "api_error",
    "connect_timeout": "timeout_error",
    "first_event_timeout": "timeout_error",
    "idle_timeout": "timeout_error",
    "invalid_request": "invalid_request_error",
    "key_refused": "authentication_error",
    "not_found": "not_found_error",
    "overloaded": "overloaded_error",
    "rate_limited": "rate_limit_error",
    "request_refused": "invalid_request_error",
    "unknown_tool": "not_found_error",
    "timeout": "timeout_error",
}
_THEIRS = re.compile("[a-z_]+_error")
"""Names of Anthropic's own errors, which pass unchanged."""

_PLACES = {
    "char_location": ("document_index", "start_char_index", "end_char_index"),
    "page_location": ("document_index", "start_page_number", "end_page_number"),
}
"""Anthropic's citations of documents. The AI SDK fails on its other kinds."""


def event_frame(kind: str, /, **fields: object) -> Frame:
    """An event as a frame. The SDKs skip frames without an `event:` line."""
    return sse.frame(safe_json(_json({"type": kind, **fields})), event=kind)


def started(state: State) -> Frame:
    """`message_start`. The usage follows at the end."""
    root = state.root
    assert root is not None
    ident = root.task_id
    message: Json = {
        "id": ident if ident.startswith("msg_") else f"msg_{ident}",
        "type": "message",
        "role": "assistant",
        "model": model_name(root),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    return event_frame("message_start", message=message)


def stopped(state: State, reason: str) -> list[Frame]:
    """The end of a message that did not fail. After a handoff the message has another `model`."""
    root = state.root
    assert root is not None
    delta: Json = {"stop_reason": reason, "stop_sequence": None}
    if root.switches:
        delta["model"] = root.speaker
    return [
        event_frame("message_delta", delta=delta, usage=_usage(state)),
        event_frame("message_stop"),
    ]


def failed(error: ErrorInfo) -> Frame:
    """The end of a stream that failed."""
    theirs = error.code if _THEIRS.fullmatch(error.code) else "api_error"
    kind = _ERRORS.get(error.code, theirs)
    return event_frame("error", error={"type": kind, "message": error.message})


def ended(state: State) -> list[Frame]:
    """The end of a run whose blocks are all closed."""
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


def paused(state: State, unsent: list[ItemNode]) -> list[Frame]:
    """The end of a stream whose run waits for the client's tools, or for people.

    The client has not seen the calls in `unsent`, so it cannot execute them.
    """
    root = state.root
    assert root is not None
    return stopped(state, "tool_use" if awaits_client(root, unsent) else "pause_turn")


def _answered(root: TaskNode) -> str:
    if awaits_client(root):
        return "tool_use"
    messages = [node for node in root.output() if isinstance(node.item, Message)]
    return "refusal" if messages and _refuses(messages[-1]) else "end_turn"


def _refuses(node: ItemNode) -> bool:
    return any(part.kind == "refusal" for part in node.parts.values())


def _usage(state: State) -> Json:
    """The usage of the run. Anthropic does not count cached tokens as `input_tokens`."""
    counts = token_counts(state)
    read, written = counts.cached_input_tokens, counts.cache_write_tokens
    shown: Json = {
        "input_tokens": max(counts.input_tokens - read - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": counts.output_tokens,
    }
    if counts.reasoning_tokens:
        shown["output_tokens_details"] = {"thinking_tokens": counts.reasoning_tokens}
    return shown


def citation(sources: Sources, root: TaskNode, annotation: Annotation, at: int) -> Json | None:
    """An annotation as a citation of its whole block: Anthropic's citations have no range.

    A link is a `web_search_result_location`, the only kind that all SDKs show. Its passage and its
    `encrypted_index` are not known.
    """
    if isinstance(annotation, RawAnnotation):
        return _location(annotation.raw)
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
    link = sources.link(root, annotation, at)
    assert link is not None
    return {
        "type": "web_search_result_location",
        "cited_text": "",
        "encrypted_index": "",
        "title": link[1],
        "url": link[0],
    }


def _location(raw: Any) -> Json | None:
    """Anthropic's own location in a document, if it is well formed."""
    kind = dict_of(raw).get("type")
    if not isinstance(kind, str) or kind not in _PLACES:
        return None
    numbers = {name: raw.get(name) for name in _PLACES[kind]}
    cited, title = raw.get("cited_text"), raw.get("document_title")
    if not isinstance(cited, str) or any(type(number) is not int for number in numbers.values()):
        return None
    shown = text_or_none(title)
    return {"type": kind, "cited_text": cited, "document_title": shown, **numbers}
