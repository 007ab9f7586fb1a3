"""Which part of its item an event changes: the table that fold, rules and wire formats read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from tailrace.core import events as ev
from tailrace.core.items import Item, Message, Reasoning, ToolCall, ToolResult


class PartPlace(NamedTuple):
    """Where the part of an event is found."""

    kind: str
    """`summary`, `reasoning_text`, `arguments`, `text`, `refusal`, `image`, `data` or `file`."""
    holders: tuple[type[Item], ...]
    """The kinds of item that have such parts."""
    store: str
    """The attribute of `ItemNode` that holds the parts: `parts`, `texts` or `arguments`."""
    index_of: Callable[[Any], int]
    """The index of the part in that store; a call has only one text of arguments."""


_SUMMARY = PartPlace("summary", (Reasoning,), "parts", attrgetter("summary_index"))
_REASONING = PartPlace("reasoning_text", (Reasoning,), "texts", attrgetter("text_index"))
_ARGUMENTS = PartPlace("arguments", (ToolCall,), "arguments", lambda _event: 0)
_TEXT = PartPlace("text", (ToolResult, Message), "parts", attrgetter("block_index"))
_REFUSAL = _TEXT._replace(kind="refusal")
_IMAGE = _TEXT._replace(kind="image")

PARTS: Mapping[type[Any], PartPlace] = {
    ev.SummaryItemAdded: _SUMMARY,
    ev.SummaryTextDelta: _SUMMARY,
    ev.SummaryItemDone: _SUMMARY,
    ev.ReasoningTextAdded: _REASONING,
    ev.ReasoningTextDelta: _REASONING,
    ev.ReasoningTextDone: _REASONING,
    ev.ArgumentsDelta: _ARGUMENTS,
    ev.ArgumentsDone: _ARGUMENTS,
    ev.TextAdded: _TEXT,
    ev.TextDelta: _TEXT,
    ev.AnnotationAdded: _TEXT,
    ev.TextDone: _TEXT,
    ev.RefusalAdded: _REFUSAL,
    ev.RefusalDelta: _REFUSAL,
    ev.RefusalDone: _REFUSAL,
    ev.ImageAdded: _IMAGE,
    ev.ImageDelta: _IMAGE,
    ev.ImageDone: _IMAGE,
    ev.DataDone: _TEXT._replace(kind="data"),
    ev.FileDone: _TEXT._replace(kind="file"),
}
"""Every event that adds, changes or ends a part of an item."""

DELTA_OF: Mapping[str, type[Any]] = {
    "summary": ev.SummaryTextDelta,
    "reasoning_text": ev.ReasoningTextDelta,
    "arguments": ev.ArgumentsDelta,
    "text": ev.TextDelta,
    "refusal": ev.RefusalDelta,
}
"""The event that appends to each kind of text."""

DELTAS: dict[type[Any], Callable[[Any], int]] = {
    delta: PARTS[delta].index_of for delta in DELTA_OF.values()
}
"""The events that append to a text, with the index of that text in its item."""
