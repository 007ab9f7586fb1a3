"""Checks AG-UI streams: each event by the official models, their order by the client's rules."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ag_ui.core import Event
from pydantic import BaseModel, TypeAdapter

from tailrace.core.sse import SseParser

_EVENT: TypeAdapter[Any] = TypeAdapter(Event)
_OPENS = {
    "TEXT_MESSAGE_START": ("text", "messageId"),
    "TOOL_CALL_START": ("tool", "toolCallId"),
    "REASONING_START": ("span", "messageId"),
    "REASONING_MESSAGE_START": ("reasoning", "messageId"),
    "STEP_STARTED": ("step", "stepName"),
    "SUBAGENT_STARTED": ("agent", "subagentRunId"),
}
_USES = {
    "TEXT_MESSAGE_CONTENT": ("text", "messageId"),
    "TOOL_CALL_ARGS": ("tool", "toolCallId"),
    "REASONING_MESSAGE_CONTENT": ("reasoning", "messageId"),
}
_CLOSES = {
    "TEXT_MESSAGE_END": ("text", "messageId"),
    "TOOL_CALL_END": ("tool", "toolCallId"),
    "REASONING_END": ("span", "messageId"),
    "REASONING_MESSAGE_END": ("reasoning", "messageId"),
    "STEP_FINISHED": ("step", "stepName"),
    "SUBAGENT_FINISHED": ("agent", "subagentRunId"),
    "SUBAGENT_ERROR": ("agent", "subagentRunId"),
}


def read(frames: Iterable[bytes]) -> list[dict[str, Any]]:
    """The events of a stream, each valid by itself."""
    events = []
    for frame in frames:
        assert b"\r" not in frame
        for one in SseParser().feed(frame):
            event = json.loads(one.data)
            _no_extras(_EVENT.validate_python(event))
            optional = event.keys() - {"value", "snapshot"}
            assert all(event[name] is not None for name in optional), event
            events.append(event)
    return events


def _no_extras(value: Any) -> None:
    """No field that the official models do not have, at any depth."""
    if isinstance(value, BaseModel):
        assert not value.model_extra, value
        for name in type(value).model_fields:
            _no_extras(getattr(value, name))
    elif isinstance(value, list):
        for one in value:
            _no_extras(one)


def check(events: list[dict[str, Any]], *, complete: bool = True) -> None:
    """The order that `@ag-ui/client` verifies; a complete stream leaves nothing open."""
    opened: set[tuple[str, str | None, str]] = set()
    running = over = False
    for event in events:
        kind = event["type"]
        tag = None if kind.startswith("SUBAGENT") else event.get("subagentRunId")
        assert not over, f"{event} after RUN_ERROR"
        if kind == "RUN_STARTED":
            assert not running, event
            running = True
            continue
        if kind == "RUN_ERROR":
            assert not opened, (event, opened)
            over, running = True, False
            continue
        assert running, f"{event} outside of a run"
        if kind in _OPENS:
            name, field = _OPENS[kind]
            key = (name, tag, event[field])
            assert key not in opened, f"{event} is open already"
            opened.add(key)
        elif kind in _USES or kind in _CLOSES:
            name, field = (_USES | _CLOSES)[kind]
            assert (name, tag, event[field]) in opened, f"{event} is not open"
            if kind in _CLOSES:
                opened.remove((name, tag, event[field]))
        elif kind == "RUN_FINISHED":
            assert not opened, (event, opened)
            running = False
        if tag is not None:
            assert ("agent", None, tag) in opened, f"{event} of an agent that is not open"
    assert not complete or not running, "the stream has no end"


def messages(events: list[dict[str, Any]]) -> list[Any]:
    """What the events say, item by item, however they were cut into pieces."""
    found: dict[tuple[str, Any], Any] = {}
    for event in events:
        kind, rest = event["type"], {k: v for k, v in event.items() if k != "delta"}
        if kind in ("RUN_STARTED", "RUN_FINISHED") or kind.endswith("_START"):
            found[kind, str(rest)] = rest
        elif kind in _USES:
            ident = (kind, event[_USES[kind][1]])
            found[ident] = found.get(ident, "") + event["delta"]
        elif kind in (
            "TOOL_CALL_RESULT",
            "STATE_SNAPSHOT",
            "SUBAGENT_STARTED",
            "SUBAGENT_FINISHED",
        ):
            found[kind, str(rest)] = rest
    return sorted(map(str, found.items()))
