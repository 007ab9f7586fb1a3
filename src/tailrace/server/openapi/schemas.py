"""The bodies and answers of our own API, as `GET /openapi.json` describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tailrace.core.codec import MAX_INTEGER
from tailrace.core.ids import MAX_ID_BYTES
from tailrace.core.values import Json
from tailrace.runtime.agents.descriptions import AgentInfo

_PLACE = "#/components/schemas/"
NO_NUL = r"^[^\x00]*$"
ANY: Json = {"$ref": f"{_PLACE}Value"}
OBJECT: Json = {"$ref": f"{_PLACE}Object"}
AGENT: Json = {"$ref": f"{_PLACE}AgentName"}
MODEL_AGENT: Json = {"$ref": f"{_PLACE}ModelAgentName"}

COMMON: Json = {
    "Value": {
        "description": "Any JSON that a log can hold (PROTOCOL.md, section 1).",
        "type": ["null", "boolean", "number", "string", "array", "object"],
        "if": {"type": "integer"},
        "then": {"minimum": -MAX_INTEGER, "maximum": MAX_INTEGER},
        "pattern": NO_NUL,
        "items": ANY,
        "propertyNames": {"pattern": NO_NUL},
        "additionalProperties": ANY,
    },
    "Object": {
        "type": "object",
        "propertyNames": {"pattern": NO_NUL},
        "additionalProperties": ANY,
    },
    "AgentName": {"type": "string", "description": "The name of an agent."},
    "ModelAgentName": {"type": "string", "description": "The name of an agent with a model."},
}
"""Schemas that others refer to. A server lists its agents in them."""

JsonValue = Annotated[Any, Meta(extra_json_schema=ANY)]
JsonObject = dict[Annotated[str, Meta(pattern=NO_NUL)], JsonValue]
AgentNameField = Annotated[str, Meta(extra_json_schema=AGENT)]

Id = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_ID_BYTES,
        pattern=r"^(?!\.{1,2}$)[^\x00-\x1f\x7f-\x9f/]+$",
        description="An id (PROTOCOL.md, section 1).",
    ),
]
ID: Json = msgspec.json.schema(Id)

RunStatus = Literal[
    "queued", "in_progress", "input_required", "completed", "incomplete", "failed", "cancelled"
]


class ThreadRunRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A run to start in the thread of the path."""

    agent: AgentNameField
    input: JsonValue = None
    """Any JSON: a text, a message, a list of messages."""
    previous_run_id: Id | None = None
    """The run that this run continues; null begins a conversation."""
    previous_seq: Annotated[int, Meta(ge=1, le=MAX_INTEGER)] | None = None
    """The event of the previous run after which this run forks it."""
    options: JsonObject | None = None
    metadata: JsonObject | None = None
    store: bool | None = None
    """False: the run is deleted about a minute after its end."""
    stream: bool | None = None
    """True: the answer is the run's stream, in the format of the query."""


class RunRequest(ThreadRunRequest, forbid_unknown_fields=True, kw_only=True):
    """A run to start."""

    thread_id: Id | None = None


_FORKS: Json = {
    "if": {"properties": {"previous_seq": {"type": "integer"}}, "required": ["previous_seq"]},
    "then": {"properties": {"previous_run_id": {"type": "string"}}},
}
_FORKS_NAMED: Json = {
    **_FORKS,
    "then": {
        **_FORKS["then"],
        "anyOf": [
            {"required": ["previous_run_id"]},
            {"required": ["thread_id"], "properties": {"thread_id": {"type": "string"}}},
        ],
    },
}
START = Annotated[RunRequest, Meta(extra_json_schema=_FORKS_NAMED)]
START_IN_THREAD = Annotated[ThreadRunRequest, Meta(extra_json_schema=_FORKS)]


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
    status: RunStatus | msgspec.UnsetType = msgspec.UNSET


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
    status: RunStatus
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
    status: RunStatus
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


class InputAnswer(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The answer to a request of a run."""

    request_id: Annotated[str, Meta(pattern=NO_NUL)]
    approved: bool | None = None
    value: JsonValue = None
    reason: Annotated[str, Meta(pattern=NO_NUL)] | None = None


INPUT: Json = {
    "anyOf": [
        InputAnswer,
        {**COMMON["Object"], "not": {"required": ["request_id"]}},
    ]
}
"""A value for a run's agent; with `request_id` the answer to a request."""


class Accepted(msgspec.Struct):
    """An input that is stored."""

    status: Literal["accepted"]


class TicketRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A stream to open without a key."""

    path: Annotated[
        str, Meta(pattern=r"^/(runs|threads)/(?!\.{1,2}/)[^\x00-\x1f\x7f-\x9f/%?]+/events$")
    ]


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
