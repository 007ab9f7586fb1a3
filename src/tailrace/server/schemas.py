"""The bodies and answers of our own API, as `GET /openapi.json` describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tailrace.core.ids import MAX_ID_BYTES
from tailrace.runtime.descriptions import AgentInfo

Id = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_ID_BYTES,
        pattern=r"^(?!\.{1,2}$)[^\x00-\x1f\x7f-\x9f/]+$",
        description="An id (PROTOCOL.md, section 1).",
    ),
]

Status = Literal[
    "queued", "in_progress", "input_required", "completed", "incomplete", "failed", "cancelled"
]


class ThreadRunRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A run to start in the thread of the path."""

    agent: str
    """The name of an agent."""
    input: Any = None
    """Any JSON: a text, a message, a list of messages."""
    previous_run_id: Id | None = None
    """The run that this run continues; null begins a conversation."""
    previous_seq: int | None = None
    """The event of the previous run after which this run forks it."""
    options: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    """False: the run is deleted about a minute after its end."""
    stream: bool | None = None
    """True: the answer is the run's stream, in the format of the query."""


class RunRequest(ThreadRunRequest, forbid_unknown_fields=True, kw_only=True):
    """A run to start."""

    thread_id: Id | None = None


class Started(msgspec.Struct):
    """A run that is stored."""

    run_id: str
    thread_id: str
    events: str
    """The path of its stream."""


class RunView(msgspec.Struct):
    """The client's view of a run (PROTOCOL.md, section 5). It may have more fields."""

    task_id: str
    output: list[dict[str, Any]]
    status: Status | msgspec.UnsetType = msgspec.UNSET


class Agents(msgspec.Struct):
    """The agents of the server."""

    agents: list[str]
    """The names that a run can be started with."""
    formats: list[str]
    """The wire formats."""
    details: list[AgentInfo]
    """What each agent does, and with which tools."""


class ThreadSummary(msgspec.Struct):
    """A thread in the list."""

    thread_id: str
    title: str
    agent: str
    status: Status
    runs: int
    last_run_id: str
    created_at: float
    updated_at: float
    """When its last run was created."""
    found_run_id: str | None = None
    """The newest run that has the searched words."""


class Threads(msgspec.Struct):
    """A page of threads, newest first. `next` is `before` of the next page."""

    threads: list[ThreadSummary]
    next: str | None


class RunSummary(msgspec.Struct):
    """A run of a thread."""

    run_id: str
    title: str
    agent: str
    status: Status
    previous_run_id: str | None
    previous_seq: int | None
    created_at: float
    ended_at: float | None
    last_seq: int
    attempts: int


class ThreadRuns(msgspec.Struct):
    """The runs of a thread, oldest first."""

    thread_id: str
    runs: list[RunSummary]


class Deleted(msgspec.Struct):
    """A thread that was deleted."""

    thread_id: str
    deleted: Literal[True]


class Accepted(msgspec.Struct):
    """An input that is stored."""

    status: Literal["accepted"]


class TicketRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A stream to open without a key."""

    path: Annotated[str, Meta(pattern=r"^/(runs|threads)/[^/]+/events$")]


class Ticket(msgspec.Struct):
    """A ticket for one stream."""

    ticket: str
    expires_in: float
    """Seconds."""


class Alive(msgspec.Struct):
    """The process answers."""

    status: Literal["ok"]


class Ready(msgspec.Struct):
    """Whether the server accepts runs."""

    status: Literal["ready", "not_ready"]
    store: Literal["ok", "away"]
    bus: Literal["ok", "away"]


class ErrorDetail(msgspec.Struct):
    """What went wrong, and what to do."""

    code: str
    """Stable, for programs."""
    message: str
    """For people."""
    type: str
    """Equals `code`."""
    param: str | None
    """The field of the request that is wrong."""


class Error(msgspec.Struct):
    """An error (PROTOCOL.md, section 10)."""

    error: ErrorDetail


# --- what clients of other APIs send -------------------------------------------------------------

Json = dict[str, Any]


def _request(required: dict[str, Json], **others: Json) -> Json:
    properties = {**required, **others}
    return {"type": "object", "required": list(required), "properties": properties}


_MODEL: Json = {"type": "string", "description": "The name of an agent."}
_STREAM: Json = {"type": ["boolean", "null"]}
_MESSAGES: Json = {"type": "array", "minItems": 1, "items": {"type": "object"}}
_TOOLS: Json = {"type": ["array", "null"], "items": {"type": "object"}}

RESPONSE_REQUEST = _request(
    {"model": _MODEL, "input": {"anyOf": [{"type": "string"}, _MESSAGES]}},
    stream=_STREAM,
    previous_response_id={"type": ["string", "null"]},
    metadata={"type": ["object", "null"]},
)
COMPACT_REQUEST = _request({"model": _MODEL}, previous_response_id={"type": ["string", "null"]})
COMPLETION_REQUEST = _request(
    {"model": _MODEL, "messages": _MESSAGES}, stream=_STREAM, tools=_TOOLS
)
MESSAGE_REQUEST = _request(
    {"model": _MODEL, "messages": _MESSAGES},
    system={"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
    max_tokens={"type": ["integer", "null"]},
    stream=_STREAM,
    tools=_TOOLS,
)
CHAT_REQUEST = _request({"id": {"type": "string"}, "messages": _MESSAGES}, agent=_MODEL)
AG_UI_REQUEST = _request(
    {
        "threadId": {"type": "string"},
        "runId": {"type": "string"},
        "messages": {"type": "array", "items": {"type": "object"}},
    },
    resume={"type": ["array", "null"], "items": {"type": "object"}},
)


def _answer(**properties: Json) -> Json:
    return {"type": "object", "required": list(properties), "properties": properties}


RESPONSE = _answer(
    id={"type": "string"},
    object={"const": "response"},
    status={"type": "string"},
    output={"type": "array", "items": {"type": "object"}},
)
COMPLETION = _answer(
    id={"type": "string"},
    object={"const": "chat.completion"},
    choices={"type": "array", "items": {"type": "object"}},
)
MESSAGE = _answer(
    id={"type": "string"},
    type={"const": "message"},
    role={"const": "assistant"},
    content={"type": "array", "items": {"type": "object"}},
)
LISTED = _answer(
    object={"const": "list"},
    data={"type": "array", "items": {"type": "object"}},
    has_more={"type": "boolean"},
)
MODEL = _answer(id={"type": "string"}, object={"const": "model"})
