"""The events of the `agents` format. PROTOCOL.md, section 9.4.

On the wire each has its name twice: as `type` and as `event_type`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from tailrace.core import sse


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of the events of the `agents` format."""

    @property
    def type(self) -> str:
        """The name on the wire, such as `run_item_stream_event`."""
        return str(self.__struct_config__.tag)


class RunItem(msgspec.Struct, frozen=True, kw_only=True):
    """A finished item: `raw_item` is an item of OpenAI's Responses API.

    `output` is the text of a tool's result; other items have none.
    """

    type: str
    agent: AgentName
    raw_item: dict[str, Any]
    output: str | None = None


class AgentName(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, by its name."""

    name: str


class ToolPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A call on the way from the run to a sub-agent, and the task that works on it."""

    tool_name: str
    tool_call_id: str
    task_id: str


class RawResponsesStreamEvent(StreamEvent, frozen=True, kw_only=True, tag="raw_response_event"):
    """An event of OpenAI's Responses stream; each task is a response of its own."""

    event_type: Literal["raw_response_event"] = "raw_response_event"
    data: Any


class RunItemStreamEvent(StreamEvent, frozen=True, kw_only=True, tag="run_item_stream_event"):
    """An item is finished; `name` is its kind, such as `message_output_created`."""

    event_type: Literal["run_item_stream_event"] = "run_item_stream_event"
    name: str
    item: RunItem


class AgentUpdatedStreamEvent(
    StreamEvent, frozen=True, kw_only=True, tag="agent_updated_stream_event"
):
    """This agent speaks now."""

    event_type: Literal["agent_updated_stream_event"] = "agent_updated_stream_event"
    new_agent: AgentName


class RunItemsSupersededEvent(
    StreamEvent, frozen=True, kw_only=True, tag="run_items_superseded_event"
):
    """These items no longer count: the agent makes them again after a fault."""

    event_type: Literal["run_items_superseded_event"] = "run_items_superseded_event"
    item_ids: list[str]


InternalEvent: TypeAlias = (
    RunItemStreamEvent | RawResponsesStreamEvent | AgentUpdatedStreamEvent | RunItemsSupersededEvent
)
"""What is wrapped when it happens inside a streaming tool."""


class StreamingToolContextEvent(
    StreamEvent, frozen=True, kw_only=True, tag="streaming_tool_context_event"
):
    """An event inside a streaming tool. It is shown, and no part of the conversation.

    The innermost tool wraps it, once. `ancestry` has all tools around it, from the run's own call
    to the innermost.
    """

    event_type: Literal["streaming_tool_context_event"] = "streaming_tool_context_event"
    tool_name: str
    tool_call_id: str
    internal_event: InternalEvent
    ancestry: list[ToolPlace]


class NotifyStreamEvent(StreamEvent, frozen=True, kw_only=True, tag="notify_stream_event"):
    """A notice or progress for people, or a question to them (`request`)."""

    event_type: Literal["notify_stream_event"] = "notify_stream_event"
    data: str
    level: str = "info"
    details: Any = None
    progress: dict[str, Any] | None = None
    request: dict[str, Any] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    ancestry: list[ToolPlace] = []


class StreamingToolStartEvent(
    StreamEvent, frozen=True, kw_only=True, tag="tool_stream_start_event"
):
    """A tool begins to run."""

    event_type: Literal["tool_stream_start_event"] = "tool_stream_start_event"
    tool_name: str
    tool_call_id: str
    ancestry: list[ToolPlace] = []


class StreamingToolEndEvent(StreamEvent, frozen=True, kw_only=True, tag="tool_stream_end_event"):
    """A tool has ended; `status` is that of its result, `incomplete` without a result."""

    event_type: Literal["tool_stream_end_event"] = "tool_stream_end_event"
    tool_name: str
    tool_call_id: str
    status: str
    ancestry: list[ToolPlace] = []


class StreamGapEvent(StreamEvent, frozen=True, kw_only=True, tag="stream_gap_event"):
    """The log no longer has the events before this place. The state follows in few events."""

    event_type: Literal["stream_gap_event"] = "stream_gap_event"
    reason: str


AgentsEvent: TypeAlias = (
    RunItemStreamEvent
    | RawResponsesStreamEvent
    | AgentUpdatedStreamEvent
    | RunItemsSupersededEvent
    | StreamingToolContextEvent
    | NotifyStreamEvent
    | StreamingToolStartEvent
    | StreamingToolEndEvent
    | StreamGapEvent
)
"""Any event of the format."""


class EventReader:
    """Reads the events of a stream of the format, from bytes that are cut anywhere."""

    def __init__(self) -> None:
        self._parser = sse.SseParser()

    def feed(self, piece: bytes) -> list[AgentsEvent]:
        """The events that are complete with these bytes."""
        return [_decode(frame.data) for frame in self._parser.feed(piece)]


_decode = msgspec.json.Decoder(AgentsEvent).decode
